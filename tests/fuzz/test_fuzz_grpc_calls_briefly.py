"""Some thousand strange calls of RocketMQ 5 in every test run, and planted bugs that they must catch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.worlds.grpc_fuzzing import Broken, run_calls

from orbitmq.broker.messaging import acknowledging, sending, telemetry, transactions
from orbitmq.broker.messaging.held_messages import HeldMessages
from orbitmq.broker.messaging.receiving import ReceiveCalls
from orbitmq.broker.messaging.sessions import Sessions
from orbitmq.broker.pop.pops import Pops
from orbitmq.protocol.grpc.merged_settings import milliseconds_of
from orbitmq.store.durability import PutStatus
from orbitmq.store.store import MessageStore

SEED = 20
COUNT = 4_000
CALLS_OF_A_WORLD = 1_000


def fuzz(count: int = COUNT) -> Counter[str]:
    return Counter(run_calls(SEED, count, CALLS_OF_A_WORLD))


def test_strange_calls_are_refused_or_carried_out() -> None:
    outcomes = fuzz()
    assert outcomes.total() == COUNT
    for rpc in (
        "SendMessage",
        "ReceiveMessage",
        "AckMessage",
        "ChangeInvisibleDuration",
        "EndTransaction",
        "Heartbeat",
    ):
        assert outcomes[f"{rpc} OK"] > 10, "hardly a request was understood"
    assert outcomes["Telemetry goes on"] > 10


def too_large_a_number(patch: pytest.MonkeyPatch) -> None:
    def milliseconds(duration: Any) -> int:
        if duration.seconds < 0 or duration.seconds > 43_200:
            raise OverflowError("planted")
        return milliseconds_of(duration)

    patch.setattr(acknowledging, "milliseconds_of", milliseconds)


def answered_before_the_write(patch: pytest.MonkeyPatch) -> None:
    def at_once(self: MessageStore, end_offset: int, wait: bool, on_done: Callable[[PutStatus], None]) -> None:
        on_done(PutStatus.PUT_OK)

    patch.setattr(MessageStore, "wait_durable", at_once)


def answered_though_nobody_wants_it(patch: pytest.MonkeyPatch) -> None:
    whole = sending._told

    def told(open_send: Any, *arguments: Any) -> None:
        open_send.call.is_wanted, wanted = True, open_send.call.is_wanted
        whole(open_send, *arguments)
        open_send.call.is_wanted = wanted

    patch.setattr(sending, "_told", told)


def a_repeated_decision_is_not_answered(patch: pytest.MonkeyPatch) -> None:
    class Quiet(transactions.TransactionCalls):
        def end(self, call: Any, request: Any) -> None:
            if request.resolution:
                super().end(call, request)

    patch.setattr("orbitmq.broker.messaging.front.TransactionCalls", Quiet)


def a_cancelled_receive_goes_on_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pops, "drop", lambda self, caller: None)
    patch.setattr(ReceiveCalls, "over", lambda self, call: None)


def settings_of_clients_that_are_gone_are_kept(patch: pytest.MonkeyPatch) -> None:
    whole = Sessions.end

    def end(self: Sessions, session: Any, reason: str) -> None:
        whole(self, session, reason)
        self._settings_bytes += session.settings_bytes

    patch.setattr(Sessions, "end", end)


def what_gone_clients_held_is_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HeldMessages, "take_all", lambda self, owner: [])
    patch.setattr(HeldMessages, "drop", lambda self, held: None)


def a_stream_has_no_last_item(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("orbitmq.broker.messaging.front.delivery_item", lambda now_ms: b"")


def wrong_settings_are_an_error_of_ours(patch: pytest.MonkeyPatch) -> None:
    whole = telemetry._stream_error

    def error(*arguments: Any) -> Any:
        error = whole(*arguments)
        return type(error)(telemetry.GrpcStatus.INTERNAL, str(error))

    patch.setattr(telemetry, "_stream_error", error)


def a_text_repeats_what_was_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("orbitmq.protocol.grpc.resource_names.TOPIC_BYTES_MAX", 1 << 30)
    patch.setattr(
        "orbitmq.protocol.grpc.resource_names._topic_problem",
        lambda name: f"{name} is none" if len(name) > 127 else None,
    )


PLANTED = [
    too_large_a_number, answered_before_the_write, answered_though_nobody_wants_it, a_repeated_decision_is_not_answered,
    a_cancelled_receive_goes_on_waiting, settings_of_clients_that_are_gone_are_kept, what_gone_clients_held_is_kept,
    a_stream_has_no_last_item,
    wrong_settings_are_an_error_of_ours, a_text_repeats_what_was_sent,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_caught(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((Broken, AssertionError)):
        fuzz()
