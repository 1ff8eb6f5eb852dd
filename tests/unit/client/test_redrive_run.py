"""A run over dead letters: what is sent, where its place is, and what it leaves behind when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from scripted_cluster import NAME_SERVER, Broker, Cluster

from orbitmq.client._async.client import Client
from orbitmq.client.redrive import ORIGIN_PROPERTY, DeadLetters, RedriveResult, progress_group
from orbitmq.clock import ManualClock
from orbitmq.errors import ClientError, ConfigurationError, NotFoundError
from orbitmq.protocol.ids import encode_offset_id
from orbitmq.protocol.names import REDRIVE_GROUP
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import Record
from orbitmq.protocol.remoting.bodies import BrokerData, ClusterInfo
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.commands import SEND_V1_FIELDS
from orbitmq.protocol.remoting.frame import Command, response

Run = Callable[[Callable[[], Awaitable[None]]], None]

DLQ = "%DLQ%g"
SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def broker(cluster: Cluster) -> Broker:
    """Its dead-letter queue holds the letters 0 to 4, odd and even ones by tag, that came from topic `T`."""
    cluster.add_topic(DLQ, queues=1)
    broker = cluster.brokers["b-a"]
    for number in range(5):
        kept = {
            "RETRY_TOPIC": "T",
            "TAGS": "odd" if number % 2 else "even",
            "RECONSUME_TIME": "16",
            "number": str(number),
        }
        broker.store(DLQ, 0, b"letter %d" % number, reconsume_times=16, **kept)
    return broker


def client(cluster: Cluster) -> Client:
    return Client(NAME_SERVER, clock=ManualClock(), dial=cluster.dial)


def arrived(broker: Broker, topic: str = "T") -> list[Record]:
    return [record for (name, _), queue in broker.queues.items() if name == topic for record in queue]


def bodies(broker: Broker, topic: str = "T") -> list[bytes]:
    return sorted(record.body for record in arrived(broker, topic))


def redrive(run: Run, cluster: Cluster, *arguments: Any, **options: Any) -> RedriveResult:
    results: list[RedriveResult] = []

    async def work() -> None:
        async with client(cluster) as mq:
            results.append(await mq.admin.redrive("g", *arguments, **options))

    run(work)
    return results[0]


def test_each_letter_starts_anew_in_its_topic(run: Run, cluster: Cluster, broker: Broker) -> None:
    result = redrive(run, cluster)
    assert (result.total, result.looked_at, result.redriven, result.complete) == (5, 5, 5, True)
    assert bodies(broker) == [b"letter %d" % number for number in range(5)]
    for record in arrived(broker):
        properties = decode_properties(record.properties)
        assert record.reconsume_times == 0
        assert properties[ORIGIN_PROPERTY] == f"{DLQ}-0-{properties['number']}"
        assert properties["UNIQ_KEY"] != properties[ORIGIN_PROPERTY]
        assert not {"RETRY_TOPIC", "RECONSUME_TIME"} & set(properties)
    assert broker.offsets[REDRIVE_GROUP, DLQ, 0] == 5


def test_the_next_run_goes_on_behind_the_last_one(run: Run, cluster: Cluster, broker: Broker) -> None:
    redrive(run, cluster)
    broker.store(DLQ, 0, b"letter 5", RETRY_TOPIC="T")
    assert redrive(run, cluster).looked_at == 1
    assert len(arrived(broker)) == 6


def test_what_is_not_meant_is_passed_for_this_selection_only(run: Run, cluster: Cluster, broker: Broker) -> None:
    odd = DeadLetters(tags=frozenset({"odd"}))
    result = redrive(run, cluster, odd)
    assert (result.redriven, result.passed_over) == (2, 3)
    assert broker.offsets[progress_group(odd, None), DLQ, 0] == 5
    assert redrive(run, cluster).redriven == 5
    assert len(arrived(broker)) == 5  # the broker knew two of them


def test_a_dry_run_changes_nothing(run: Run, cluster: Cluster, broker: Broker) -> None:
    result = redrive(run, cluster, dry_run=True)
    assert (result.redriven, result.topics) == (5, {"T": 5})
    assert arrived(broker) == []
    assert broker.offsets == {}


def test_a_failure_ends_the_run_and_the_next_one_takes_up_there(run: Run, cluster: Cluster, broker: Broker) -> None:
    sent = 0

    def fail_third(command: Command) -> Command | None:
        nonlocal sent
        sent += 1
        return response(command, ResponseCode.INVALID_PARAMETER, "no") if sent == 3 else broker.store_message(command)

    broker.script(SEND, *[fail_third] * 3)
    seen: list[int] = []
    with pytest.raises(ClientError):
        redrive(run, cluster, on_progress=lambda result: seen.append(result.redriven))
    assert seen == [1, 2]
    assert broker.offsets[REDRIVE_GROUP, DLQ, 0] == 2
    assert redrive(run, cluster).redriven == 3
    assert bodies(broker) == [b"letter %d" % number for number in range(5)]


def test_what_a_killed_run_had_sent_is_not_stored_twice(run: Run, cluster: Cluster, broker: Broker) -> None:
    redrive(run, cluster, max_count=3)
    broker.offsets[REDRIVE_GROUP, DLQ, 0] = 1  # the last commit before the kill
    assert redrive(run, cluster).redriven == 4
    assert bodies(broker) == [b"letter %d" % number for number in range(5)]


def test_again_sends_also_what_was_sent(run: Run, cluster: Cluster, broker: Broker) -> None:
    redrive(run, cluster)
    assert redrive(run, cluster, again=True).redriven == 5
    assert len(arrived(broker)) == 10


def test_a_letter_that_dies_while_the_run_goes_on_is_for_the_next(run: Run, cluster: Cluster, broker: Broker) -> None:
    def die_again(command: Command) -> Command:
        broker.store(DLQ, 0, bytes(command.body), RETRY_TOPIC="T")
        return broker.store_message(command)

    broker.script(SEND, *[die_again] * 10)
    result = redrive(run, cluster)
    assert (result.total, result.redriven, result.complete) == (5, 5, True)
    broker.forget_script(SEND)
    assert redrive(run, cluster).redriven == 5
    assert len(arrived(broker)) == 10  # other dead letters, though of the same messages


def test_a_letter_that_can_never_be_sent_is_named_and_passed(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.store(DLQ, 0, b"of a topic that is gone", RETRY_TOPIC="gone")
    broker.store(DLQ, 0, b"of nowhere")
    broker.store(DLQ, 0, b"last", RETRY_TOPIC="T")
    result = redrive(run, cluster)
    assert (result.looked_at, result.redriven, result.refused, result.complete) == (8, 6, 2, True)
    assert [(refusal.queue_offset, "gone" in refusal.why) for refusal in result.refusals] == [(5, True), (6, False)]
    assert "gone" not in cluster.topics  # it was not created on the way


def test_all_may_go_to_another_topic(run: Run, cluster: Cluster, broker: Broker) -> None:
    cluster.add_topic("elsewhere", queues=1)
    assert redrive(run, cluster, to_topic="elsewhere").topics == {"elsewhere": 5}
    assert len(bodies(broker, "elsewhere")) == 5
    assert broker.offsets[progress_group(DeadLetters(), "elsewhere"), DLQ, 0] == 5
    assert redrive(run, cluster).redriven == 5
    assert len(arrived(broker)) == 5  # what went elsewhere is no repeat


def test_one_group_alone_gets_them_through_its_retry_topic(run: Run, cluster: Cluster, broker: Broker) -> None:
    cluster.add_topic("%RETRY%g", queues=1)
    result = redrive(run, cluster, only_group=True)
    assert (result.redriven, result.topics) == (5, {"%RETRY%g": 5})
    assert arrived(broker) == []
    for record in arrived(broker, "%RETRY%g"):
        properties = decode_properties(record.properties)
        assert (record.reconsume_times, properties["RETRY_TOPIC"]) == (0, "T")
        assert properties[ORIGIN_PROPERTY] == f"{DLQ}-0-{properties['number']}"
    broker.offsets.clear()
    assert redrive(run, cluster, only_group=True).redriven == 5
    assert len(arrived(broker, "%RETRY%g")) == 10, (
        "the place was lost, and what goes through a retry topic is recognised by no broker"
    )


def test_a_letter_that_comes_back_is_refused_and_ends_the_run(run: Run, cluster: Cluster, broker: Broker) -> None:
    """A broker makes dead letters of whatever is sent to the retry topic of a group that consumes in order."""
    cluster.add_topic("%RETRY%g", queues=1)

    def as_dead_letter(command: Command) -> Command:
        command.fields[SEND_V1_FIELDS["topic"]] = DLQ
        answer, record = broker.store_message(command), broker.queues[DLQ, 0][-1]
        answer.fields["msgId"] = encode_offset_id(record.store_host, record.physical_offset)
        return answer

    broker.script(SEND, *[as_dead_letter] * 20)
    result = redrive(run, cluster, only_group=True)
    assert (result.redriven, result.refused, result.looked_at, result.complete) == (0, 1, 1, False)
    assert "consumes in order" in result.refusals[0].why
    assert "offset 5" in result.refusals[0].why
    assert len(broker.queues[DLQ, 0]) == 6, "one letter more, not as many again"


def test_a_group_without_a_retry_topic_is_told_before_anything_is_sent(
    run: Run, cluster: Cluster, broker: Broker
) -> None:
    with pytest.raises(NotFoundError, match="no retry topic"):
        redrive(run, cluster, only_group=True)
    assert broker.requests(SEND) == []


def test_the_group_of_the_place_is_made_where_it_is_missing(run: Run, cluster: Cluster, broker: Broker) -> None:
    info = ClusterInfo(
        cluster_addr_table={"C": ["b-a"]},
        broker_addr_table={"b-a": BrokerData(broker_name="b-a", cluster="C", broker_addrs={0: broker.address})},
    )
    cluster.name_server.script(
        RequestCode.GET_BROKER_CLUSTER_INFO,
        lambda command: response(command, ResponseCode.SUCCESS, fields={}, body=info.encode()),
    )
    broker.script(RequestCode.UPDATE_CONSUMER_OFFSET, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
    broker.script(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, ResponseCode.SUCCESS)
    redrive(run, cluster)
    assert broker.offsets[REDRIVE_GROUP, DLQ, 0] == 5


def test_a_count_ends_the_run_early(run: Run, cluster: Cluster, broker: Broker) -> None:
    result = redrive(run, cluster, max_count=2)
    assert (result.redriven, result.complete, broker.offsets[REDRIVE_GROUP, DLQ, 0]) == (2, False, 2)


def test_a_rate_spreads_the_letters_over_time(run: Run, cluster: Cluster, broker: Broker) -> None:
    times: list[float] = []
    redrive(run, cluster, rate=0.5, on_progress=lambda result: times.append(asyncio.get_running_loop().time()))
    assert [round(later - earlier) for earlier, later in pairwise(times)] == [2, 2, 2, 2]
    # Committed every second or so, not only at the end.
    assert len(broker.requests(RequestCode.UPDATE_CONSUMER_OFFSET)) >= 4


def test_retention_that_took_letters_is_no_endless_loop(run: Run, cluster: Cluster, broker: Broker) -> None:
    broker.min_offsets[DLQ, 0] = 3
    broker.offsets[REDRIVE_GROUP, DLQ, 0] = 1
    result = redrive(run, cluster)
    assert (result.total, result.redriven) == (2, 2)


def test_mistakes_are_told_before_anything_is_asked(run: Run, cluster: Cluster, broker: Broker) -> None:
    for wrong in (
        {"rate": 0.0},
        {"max_count": 0},
        {"to_topic": "a b"},
        {"to_topic": DLQ},
        {"to_topic": "T", "only_group": True},
    ):
        with pytest.raises(ConfigurationError):
            redrive(run, cluster, **wrong)
    assert broker.log == []


def test_a_group_without_dead_letters_is_told_as_such(run: Run, cluster: Cluster) -> None:
    with pytest.raises(NotFoundError, match="no dead letters"):
        redrive(run, cluster)
