"""A client says who it is, that it is still there, and that it goes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.messaging.conftest import FrontRig
from tests.worlds.grpc_calls import Caller, ListCall, commands

from orbitmq.broker import clients
from orbitmq.limits.grpc import SETTINGS_BYTES_MAX, SETTINGS_PARTS_MAX, SETTINGS_TOPICS_MAX
from orbitmq.protocol.grpc.call_error import GrpcStatus
from orbitmq.protocol.grpc.messages import (
    ClientType,
    Code,
    Duration,
    FilterExpression,
    FilterType,
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    Publishing,
    Resource,
    Settings,
    Subscription,
    SubscriptionEntry,
    TelemetryCommand,
)
from orbitmq.protocol.grpc.rpcs import Rpc
from orbitmq.protocol.remoting.bodies import ConsumeType, SubscriptionGroupConfig
from orbitmq.protocol.remoting.versions import Language

SILENCE_MS = 120_000


def producer_says(*topics: str) -> Settings:
    publishing = Publishing(topics=[Resource(name=topic) for topic in topics])
    return Settings(client_type=ClientType.PRODUCER, publishing=publishing)


def consumer_says(
    group: str = "G",
    kind: ClientType = ClientType.PUSH_CONSUMER,
    tags: str = "a || b",
    of: FilterType = FilterType.TAG,
    topic: str = "T",
) -> Settings:
    entry = SubscriptionEntry(topic=Resource(name=topic), expression=FilterExpression(type=of, expression=tags))
    subscription = Subscription(group=Resource(name=group), subscriptions=[entry])
    return Settings(client_type=kind, subscription=subscription)


def said_with_delays(count: int) -> Settings:
    """One part more than so many."""
    settings = consumer_says()
    settings.backoff_policy.customized_backoff.next.extend([Duration()] * count)
    return settings


def beat(client: Caller, group: str = "") -> HeartbeatResponse:
    request = HeartbeatRequest(group=Resource(name=group)) if group else HeartbeatRequest()
    answer: HeartbeatResponse = client.call(Rpc.HEARTBEAT, request, HeartbeatResponse)
    return answer


def told_settings(stream: ListCall) -> Settings:
    (command,) = commands(stream)
    assert command.status.code == Code.OK
    return command.settings


def test_the_group_of_a_consumer_has_a_retry_topic_by_which_tools_find_it(front_rig: FrontRig) -> None:
    front_rig.broker.groups.put(SubscriptionGroupConfig(group_name="None", retry_queue_nums=0))
    front_rig.client("one").connect(consumer_says("G"))
    front_rig.client("two").connect(consumer_says("None"))
    front_rig.client("three").connect(producer_says("P"))
    config = front_rig.broker.topics.get("%RETRY%G")
    assert config is not None
    assert config.read_queue_nums == 1
    assert front_rig.broker.topics.get("%RETRY%None") is None
    assert front_rig.broker.topics.get("%RETRY%P") is None


class TestSettings:
    def test_a_producer_is_answered_and_becomes_one_of_each_topic(self, front_rig: FrontRig) -> None:
        settings = told_settings(front_rig.client().connect(producer_says("T", "U")))
        assert settings.backoff_policy.max_attempts == 3
        assert settings.publishing.max_body_size == 4 * 1024 * 1024
        assert front_rig.broker.clients.producer_groups() == ["T", "U"]
        (member,) = front_rig.broker.clients.producer("U")
        assert (member.client_id, member.language) == ("client", Language.JAVA)

    @pytest.mark.parametrize(
        ("kind", "shown"),
        [
            (ClientType.PUSH_CONSUMER, ConsumeType.CONSUME_PASSIVELY),
            (ClientType.SIMPLE_CONSUMER, ConsumeType.CONSUME_ACTIVELY),
        ],
    )
    def test_a_consumer_is_a_member_with_its_subscriptions(
        self, front_rig: FrontRig, kind: ClientType, shown: ConsumeType
    ) -> None:
        settings = told_settings(front_rig.client().connect(consumer_says(kind=kind)))
        assert (settings.backoff_policy.max_attempts, settings.subscription.fifo) == (17, False)
        group = front_rig.broker.clients.consumer("G")
        assert group is not None
        assert group.consume_type is shown
        wish = group.subscriptions["T"]
        assert (wish.sub_string, wish.tags_set, wish.expression_type) == ("a || b", ["a", "b"], "TAG")

    def test_an_expression_is_kept_as_one(self, front_rig: FrontRig) -> None:
        front_rig.client().connect(consumer_says(tags="a > 1", of=FilterType.SQL))
        group = front_rig.broker.clients.consumer("G")
        assert group is not None
        assert (group.subscriptions["T"].expression_type, group.subscriptions["T"].tags_set) == ("SQL92", [])

    def test_a_producer_without_topics_is_answered_too(self, front_rig: FrontRig) -> None:
        told_settings(front_rig.client().connect(producer_says()))
        assert len(front_rig.front.sessions) == 1

    def test_the_stream_of_the_latest_settings_is_the_way_to_the_client(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        first, second = client.connect(producer_says("T")), client.connect(producer_says("T"))
        assert (len(commands(first)), len(commands(second))) == (1, 1)
        (member,) = front_rig.broker.clients.producer("T")
        assert member.session is front_rig.front.sessions.of(second)
        client.cancel(first)
        session = front_rig.front.sessions.of(second)
        assert session is not None
        assert session.stream is second

    def test_another_group_in_later_settings_takes_the_place_of_the_first(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        client.connect(consumer_says("G"))
        client.connect(consumer_says("H"))
        assert front_rig.broker.clients.consumer("G") is None
        assert front_rig.broker.clients.consumer("H") is not None

    def test_topics_that_later_settings_do_not_name_are_left_and_the_client_stays(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        client.connect(producer_says("T", "U"))
        client.connect(producer_says("U", "V"))
        assert front_rig.broker.clients.producer_groups() == ["U", "V"]
        for _ in range(3):
            front_rig.advance(SILENCE_MS // 2)
            assert beat(client).status.code == Code.OK

    def test_a_consumer_that_becomes_a_producer_leaves_its_group(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        client.connect(consumer_says("G"))
        client.connect(producer_says("T"))
        assert front_rig.broker.clients.consumer("G") is None
        assert front_rig.broker.clients.producer_groups() == ["T"]

    def test_a_changed_group_is_told_with_the_next_heartbeat_and_once(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        stream = client.connect(consumer_says())
        commands(stream)
        beat(client, "G")
        assert commands(stream) == []
        front_rig.broker.groups.put(
            SubscriptionGroupConfig(group_name="G", consume_message_orderly=True, retry_max_times=2)
        )
        beat(client, "G")
        settings = told_settings(stream)
        assert (settings.subscription.fifo, settings.backoff_policy.max_attempts) == (True, 3)
        beat(client, "G")
        assert commands(stream) == []

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            (producer_says("no good"), "ILLEGAL_TOPIC"),
            (producer_says("SCHEDULE_TOPIC_XXXX"), "ILLEGAL_TOPIC"),
            (consumer_says("no good"), "ILLEGAL_CONSUMER_GROUP"),
            (consumer_says(topic=""), "ILLEGAL_TOPIC"),
            (Settings(client_type=ClientType.PRODUCER), "UNRECOGNIZED_CLIENT_TYPE"),
            (
                Settings(client_type=ClientType.PUSH_CONSUMER, publishing=Publishing()),
                "UNRECOGNIZED_CLIENT_TYPE",
            ),
            (consumer_says(kind=ClientType.LITE_PUSH_CONSUMER), "UNRECOGNIZED_CLIENT_TYPE"),
            (producer_says(*(f"T{number}" for number in range(SETTINGS_TOPICS_MAX + 1))), "BAD_REQUEST"),
            (said_with_delays(SETTINGS_PARTS_MAX), "BAD_REQUEST"),
            (consumer_says(tags="x" * SETTINGS_BYTES_MAX), "BAD_REQUEST"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_wrong_settings_end_the_stream_and_nobody_is_known_by_them(
        self, front_rig: FrontRig, settings: Settings, said: str
    ) -> None:
        stream = front_rig.client().connect(settings)
        assert stream.error is not None
        assert stream.error.status is GrpcStatus.INVALID_ARGUMENT
        assert str(stream.error).startswith(said)
        assert (len(front_rig.front.sessions), stream.answers) == (0, [])

    def test_as_many_parts_as_may_be_are_taken(self, front_rig: FrontRig) -> None:
        told_settings(front_rig.client().connect(said_with_delays(SETTINGS_PARTS_MAX - 1)))

    def test_what_a_consumer_wants_is_looked_at_once(
        self, front_rig: FrontRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A heartbeat of thirty bytes does not take settings of 200 KB apart again."""
        client = front_rig.client()
        client.connect(consumer_says())
        looked: list[object] = []
        monkeypatch.setattr(clients, "wishes_of", looked.append)
        assert beat(client, "G").status.code == Code.OK
        assert looked == []

    def test_as_many_topics_as_may_be_are_taken(self, front_rig: FrontRig) -> None:
        stream = front_rig.client().connect(producer_says(*(f"T{number}" for number in range(SETTINGS_TOPICS_MAX))))
        told_settings(stream)

    def test_wrong_settings_of_a_known_client_change_nothing(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        stream = client.connect(producer_says("T"))
        assert client.connect(producer_says("no good")).error is not None
        assert front_rig.broker.clients.producer_groups() == ["T"]
        session = front_rig.front.sessions.of(stream)
        assert session is not None
        assert session.stream is stream

    def test_a_new_client_that_the_broker_refuses_is_not_known(
        self, front_rig: FrontRig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("orbitmq.broker.clients.CLIENT_GROUPS_PER_CONNECTION_MAX", 1)
        stream = front_rig.client().connect(producer_says("T", "U"))
        assert stream.error is not None
        assert stream.error.status is GrpcStatus.INTERNAL
        assert (len(front_rig.front.sessions), front_rig.broker.clients.producer_groups()) == (0, [])

    def test_commands_that_nobody_knows_are_passed_over(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        stream = client.connect(producer_says("T"))
        commands(stream)
        client.send(stream, TelemetryCommand())
        assert (stream.error, stream.ends, commands(stream)) == (None, 0, [])

    def test_a_stream_that_the_client_ends_is_ended_and_the_client_stays(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        stream = client.connect(producer_says("T"))
        front_rig.front.over(stream)
        assert stream.ends == 1
        assert front_rig.broker.clients.producer_groups() == ["T"]


class TestBeingThere:
    def test_a_client_that_sent_no_settings_is_not_known(self, front_rig: FrontRig) -> None:
        assert beat(front_rig.client()).status.code == Code.UNRECOGNIZED_CLIENT_TYPE

    def test_a_client_that_is_silent_leaves(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        client.connect(producer_says("T"))
        front_rig.advance(SILENCE_MS - 1)
        assert front_rig.broker.clients.producer_groups() == ["T"]
        front_rig.advance(1)
        assert (front_rig.broker.clients.producer_groups(), len(front_rig.front.sessions)) == ([], 0)
        assert beat(client).status.code == Code.UNRECOGNIZED_CLIENT_TYPE

    def test_one_that_belongs_to_no_group_leaves_likewise(self, front_rig: FrontRig) -> None:
        front_rig.client().connect(producer_says())
        front_rig.advance(SILENCE_MS)
        assert len(front_rig.front.sessions) == 0

    def test_heartbeats_keep_a_client_and_only_that(self, front_rig: FrontRig) -> None:
        first, second = front_rig.client("first"), front_rig.client("second")
        first.connect(consumer_says())
        second.connect(consumer_says())
        front_rig.advance(SILENCE_MS - 10)
        assert beat(first, "G").status.code == Code.OK
        front_rig.advance(10)
        group = front_rig.broker.clients.consumer("G")
        assert group is not None
        assert group.client_ids() == ["first"]

    def test_a_consumer_names_its_group(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        client.connect(consumer_says())
        assert beat(client).status.code == Code.ILLEGAL_CONSUMER_GROUP

    def test_who_comes_back_after_a_silence_is_a_new_client(self, front_rig: FrontRig) -> None:
        client = front_rig.client()
        client.connect(producer_says("T"))
        front_rig.advance(SILENCE_MS)
        told_settings(client.connect(producer_says("T")))
        assert beat(client).status.code == Code.OK

    @pytest.mark.parametrize(("settings", "group"), [(producer_says("T"), ""), (consumer_says(), "G")])
    def test_a_client_that_says_so_leaves(self, front_rig: FrontRig, settings: Settings, group: str) -> None:
        client, ended = front_rig.client(), []
        front_rig.front.sessions.ended.append(ended.append)
        client.connect(settings)
        request = NotifyClientTerminationRequest(group=Resource(name=group))
        answers: list[Any] = [
            client.call(Rpc.NOTIFY_CLIENT_TERMINATION, request, NotifyClientTerminationResponse) for _ in range(2)
        ]
        assert [answer.status.code for answer in answers] == [Code.OK, Code.UNRECOGNIZED_CLIENT_TYPE]
        assert front_rig.broker.clients.producer_groups() == []
        assert front_rig.broker.clients.consumer("G") is None
        assert len(ended) == 1
