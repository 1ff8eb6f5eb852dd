"""Every bound of gRPC has a test that goes one beyond it: here, at its real size, or where `ELSEWHERE` says."""

from __future__ import annotations

import pytest
from tests.unit.broker.messaging.conftest import FrontRig, front_rig
from tests.unit.broker.messaging.test_sessions import call_of
from tests.worlds.http2_frames import ANSWER, broken, connected, data, frame, headers, output, resets, started, window

from orbitmq.broker.messaging.held_messages import HeldMessage, HeldMessages
from orbitmq.broker.messaging.sessions import Sessions
from orbitmq.limits.grpc import (
    ANSWER_BYTES_PER_IDLE_FRAME,
    CLIENT_VERSION_CHARS_MAX,
    CONNECTION_WINDOW_BYTES,
    CONSUMER_GROUP_CHARS_MAX,
    HELD_OF_ALL_MAX,
    HELD_OF_CLIENT_MAX,
    HTTP2_FRAME_BYTES_MAX,
    IDLE_FRAMES_MAX,
    QUEUED_ANSWER_BYTES_MAX,
    SESSIONS_MAX,
    SETTINGS_FRAME_COST,
    STREAM_WINDOW_BYTES,
    STREAMS_PER_CONNECTION_MAX,
)
from orbitmq.protocol.grpc.calls import GrpcCall
from orbitmq.protocol.grpc.messages import Code, Resource
from orbitmq.protocol.grpc.resource_names import group_of
from orbitmq.protocol.grpc.rpcs import RPCS, Rpc
from orbitmq.protocol.grpc.status import RpcError
from orbitmq.protocol.http2.frames import ErrorCode
from orbitmq.protocol.http2.request_fields import RequestFields

__all__ = ["front_rig"]

HTTP2, GRPC, FRONT, PORT = (
    f"tests/unit/{folder}/test_" for folder in ("protocol/http2", "protocol/grpc", "broker/messaging", "server/grpc")
)

ELSEWHERE = {
    "HEADER_TABLE_BYTES_MAX": HTTP2 + "hpack.py::test_a_table_larger_than_was_allowed_is_refused",
    "HEADER_LIST_BYTES_MAX": HTTP2 + "hpack.py::test_a_list_may_have_16_kib_and_not_a_byte_more",
    "HEADER_INTEGER_BYTES_MAX": HTTP2 + "hpack.py::test_numbers_may_be_longer_than_needed_but_not_without_end",
    "HEADER_BLOCK_BYTES_MAX": HTTP2 + "budgets.py::test_a_header_block_that_is_too_long_is_stopped_before_it_is_whole",
    "CONTINUATIONS_MAX": HTTP2 + "budgets.py::test_a_header_block_that_does_not_end_is_stopped",
    "STREAM_RESETS_MAX": HTTP2 + "budgets.py::test_a_client_that_resets_what_it_asks_is_stopped",
    "IDLE_FRAMES_MAX": HTTP2 + "budgets.py::test_a_flood_is_stopped",
    "SETTINGS_FRAME_COST": HTTP2 + "budgets.py::test_a_flood_of_settings_is_stopped_soon",
    "IDLE_FRAMES_PER_ANSWER": HTTP2 + "budgets.py::test_pings_between_calls_are_tolerated_for_ever",
    "DROPPED_STREAMS_MAX": HTTP2 + "budgets.py::test_streams_that_are_reset_by_us_are_forgotten_in_the_end",
    "QUEUED_ANSWERS_BYTES_MAX": HTTP2 + "flow_control.py::test_connections_share_what_may_wait_of_all_of_them",
    "QUEUED_ANSWERS_SHARE": HTTP2 + "flow_control.py::test_connections_share_what_may_wait_of_all_of_them",
    "PREFACE_MS": PORT + "hostile_clients.py::test_who_does_not_begin_to_speak_is_closed",
    "QUEUED_CALLS_MAX": PORT + "many_calls.py::test_a_client_with_many_calls_lets_another_one_have_its_turn",
    "SEND_REQUEST_BYTES_MAX": PORT
    + "hostile_clients.py::test_a_message_that_announces_a_byte_too_many_ends_its_call_at_once",
    "REQUEST_BYTES_MAX": PORT
    + "hostile_clients.py::test_a_message_that_announces_a_byte_too_many_ends_its_call_at_once",
    "SEND_READ_BYTES_MAX": GRPC + "decoding.py::test_a_send_beyond_what_is_read_has_too_large_a_body",
    "SEND_MESSAGES_MAX": GRPC + "sent_messages.py::test_how_many_messages_a_request_has",
    "SEND_KEYS_MAX": GRPC + "sent_messages.py::test_how_many_keys_a_request_has",
    "STATUS_TEXT_CHARS_MAX": GRPC + "answers.py::test_a_text_beyond_its_bound_is_cut_visibly",
    "USER_PROPERTIES_MAX": GRPC + "sent_messages.py::test_what_is_beyond_a_bound_has_its_code",
    "USER_PROPERTIES_BYTES_MAX": GRPC + "sent_messages.py::test_what_is_beyond_a_bound_has_its_code",
    "MESSAGE_GROUP_BYTES_MAX": GRPC + "sent_messages.py::test_what_is_beyond_a_bound_has_its_code",
    "RECOVERY_SECONDS_MAX": GRPC + "sent_messages.py::test_what_is_beyond_a_bound_has_its_code",
    "RESOURCE_BYTES_MAX": FRONT + "routes.py::test_what_every_queue_would_repeat_is_bounded",
    "ROUTES_ANSWERED_AT_ONCE_MAX": FRONT
    + "routes.py::test_many_for_whom_a_name_server_was_asked_are_answered_in_steps",
    "ROUTES_KEPT_BYTES_MAX": FRONT + "kept_routes.py::test_what_is_kept_is_bounded_in_bytes_and_the_oldest_goes_first",
    "ROUTED_QUEUES_MAX": FRONT + "routes.py::test_a_route_that_no_client_could_take_is_not_made",
    "ROUTED_QUEUES_PER_BROKER_MIN": FRONT + "routes.py::test_a_route_that_no_client_could_take_is_not_made",
    "ENDPOINTS_BYTES_MAX": FRONT + "routes.py::test_what_every_queue_would_repeat_is_bounded",
    "SESSIONS_SETTINGS_BYTES_MAX": FRONT + "sessions.py::test_settings_of_all_clients_together_are_bounded",
    "SETTINGS_BYTES_MAX": FRONT + "telemetry.py::test_wrong_settings_end_the_stream_and_nobody_is_known_by_them",
    "COMMAND_FIELDS_MAX": GRPC + "decoding.py::test_a_large_command_has_few_fields",
    "SETTINGS_PARTS_MAX": FRONT + "telemetry.py::test_wrong_settings_end_the_stream_and_nobody_is_known_by_them",
    "SETTINGS_PART_BYTES": FRONT + "sessions.py::test_settings_of_all_clients_together_are_bounded",
    "SETTINGS_TOPICS_MAX": FRONT + "telemetry.py::test_wrong_settings_end_the_stream_and_nobody_is_known_by_them",
    "ACK_ENTRIES_MAX": FRONT + "acknowledging.py::test_one_entry_too_many_acknowledges_nothing",
    "FORWARDED_KEPT_MAX": FRONT + "acknowledging.py::test_one_repeat_too_old_is_forgotten",
    "RECEIVED_AT_ONCE_BYTES": FRONT + "receiving.py::test_a_reader_that_takes_no_more_is_waited_for",
    "RENEWED_AT_ONCE_MAX": FRONT + "renewal.py::test_very_many_are_given_back_in_steps",
    "RENEWALS_MS": FRONT + "held_messages.py::test_each_renewal_hides_a_message_for_longer",
    "REQUEST_TIMEOUT_MS": FRONT + "polling_time.py::test_how_long_a_receive_waits",
}
"""Where else the test of a bound is."""

CACHES = {"FIELD_NAME_LISTS_CACHED", "NAMES_KEPT_MAX", "MESSAGE_GROUPS_KEPT_MAX", "STORE_HOSTS_KEPT_MAX"}
"""What is not remembered any more is looked at again, and nobody notices."""


# --- here ---------------------------------------------------------------------------------------------------------------


def test_a_frame() -> None:
    connection = connected()
    connection.receive_data(headers(1) + data(1, bytes(HTTP2_FRAME_BYTES_MAX)))
    assert broken(connection, frame(0, 0, 1, bytes(HTTP2_FRAME_BYTES_MAX + 1))) is ErrorCode.FRAME_SIZE_ERROR


def test_streams_of_a_connection() -> None:
    connection = started(STREAMS_PER_CONNECTION_MAX)
    assert resets(connection) == []
    one_more = 2 * STREAMS_PER_CONNECTION_MAX + 1
    connection.receive_data(headers(one_more, end=True))
    assert resets(connection) == [(one_more, ErrorCode.REFUSED_STREAM)]
    connection.send_headers(1, ANSWER, end=True)
    connection.receive_data(headers(one_more + 2, end=True))
    assert resets(connection) == []


def test_what_a_stream_sends_before_its_window_opens_again() -> None:
    connection = connected()
    connection.receive_data(
        headers(1) + headers(3) + data(1, bytes(HTTP2_FRAME_BYTES_MAX)) * (STREAM_WINDOW_BYTES // HTTP2_FRAME_BYTES_MAX)
    )
    assert connection.stream_count == 2
    connection.receive_data(data(1, b"x"))
    assert resets(connection) == [(1, ErrorCode.FLOW_CONTROL_ERROR)]
    assert connection.failure is None


def test_what_a_connection_sends_before_its_window_opens_again() -> None:
    connection = connected()
    streams = CONNECTION_WINDOW_BYTES // STREAM_WINDOW_BYTES
    for number in range(streams):
        stream_id = 2 * number + 1
        connection.receive_data(headers(stream_id))
        for _ in range(STREAM_WINDOW_BYTES // HTTP2_FRAME_BYTES_MAX):
            connection.receive_data(data(stream_id, bytes(HTTP2_FRAME_BYTES_MAX)))
    assert connection.failure is None
    connection.receive_data(headers(2 * streams + 1))
    assert broken(connection, data(2 * streams + 1, b"x")) is ErrorCode.FLOW_CONTROL_ERROR


def test_answers_that_wait_for_windows() -> None:
    connection = started(2, INITIAL_WINDOW_SIZE=0)
    connection.send_headers(1, ANSWER)
    assert connection.send_data(1, bytes(QUEUED_ANSWER_BYTES_MAX))
    connection.send_headers(3, ANSWER)
    assert not connection.send_data(3, b"x")
    assert resets(connection) == [(3, ErrorCode.ENHANCE_YOUR_CALM)]
    assert connection.queued_bytes == QUEUED_ANSWER_BYTES_MAX


def test_windows_that_are_opened_byte_by_byte() -> None:
    """A kilobyte of an answer gives one idle frame back: little more than the bound is opened by single bytes."""
    connection = started(1, INITIAL_WINDOW_SIZE=0)
    connection.send_headers(1, ANSWER)
    connection.send_data(1, bytes(2 * IDLE_FRAMES_MAX))
    opened = 1
    while broken(connection, window(1, 1)) is None:
        output(connection)
        opened += 1
    given_back = opened // ANSWER_BYTES_PER_IDLE_FRAME
    assert abs(opened - (IDLE_FRAMES_MAX + given_back)) <= SETTINGS_FRAME_COST + 1


def test_the_name_of_a_consumer_group() -> None:
    assert group_of(Resource(name="g" * CONSUMER_GROUP_CHARS_MAX))
    with pytest.raises(RpcError) as caught:
        group_of(Resource(name="g" * (CONSUMER_GROUP_CHARS_MAX + 1)))
    assert caught.value.code == Code.ILLEGAL_CONSUMER_GROUP


def test_clients(front_rig: FrontRig) -> None:
    sessions = Sessions(front_rig.broker.core)
    for number in range(SESSIONS_MAX):
        sessions.begin(call_of(str(number)))
    with pytest.raises(RpcError) as caught:
        sessions.begin(call_of("one more"))
    assert caught.value.code == Code.TOO_MANY_REQUESTS
    sessions.begin(call_of("0")).close("test")
    assert sessions.begin(call_of("one more")).is_open


def test_the_version_of_a_client(front_rig: FrontRig) -> None:
    call = call_of("one")
    fields = RequestFields.made([(b"x-mq-client-version", b"5" * (CLIENT_VERSION_CHARS_MAX + 1))])
    call.call = GrpcCall(RPCS[Rpc.TELEMETRY], None, fields)
    assert Sessions(front_rig.broker.core).begin(call).version == "5" * CLIENT_VERSION_CHARS_MAX


def test_what_clients_hold() -> None:
    everybody = HeldMessages()
    clients, rest = divmod(HELD_OF_ALL_MAX, HELD_OF_CLIENT_MAX)
    for client in range(clients + 1):
        for number in range(HELD_OF_CLIENT_MAX if client < clients else rest):
            assert everybody.hold(held(client, number), 0)
    assert not everybody.hold(held(clients, rest), 0), "all together hold too many"
    assert len(everybody) == HELD_OF_ALL_MAX
    everybody.take_all(1)
    assert not everybody.hold(held(0, HELD_OF_CLIENT_MAX), 0), "one of them holds too many"
    assert everybody.hold(held(1, 0), 0)


def held(client: int, number: int) -> HeldMessage:
    return HeldMessage(
        owner=client, topic="T", group="g", first_handle=str(number), handle=str(number), first_ms=0, attempts_before=0
    )
