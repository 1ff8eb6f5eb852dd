"""What an import makes of each thing: created, changed, the same or refused; and files that never get that far."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Ran
from two_brokers import TwoBrokers, have_groups, have_topics

from orbitmq.cli.clusters.cluster_document import FORMAT, RecurringRow
from orbitmq.cli.clusters.cluster_import import (
    SAME,
    Done,
    ImportOutcome,
    group_done,
    joined_done,
    offset_done,
    policy_key,
    recurring_done,
    topic_done,
)
from orbitmq.limits.cli import CLUSTER_QUEUES_TOLD_MAX
from orbitmq.protocol.remoting.bodies import (
    BrokerData,
    ConsumerOffsetTable,
    KVTable,
    MessageQueue,
    QueueData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicOffset,
    TopicRouteData,
    TopicStatsTable,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode

Run = Callable[..., Ran]
ORDERS = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4, attributes={"message.type": "FIFO"})
BILLING = SubscriptionGroupConfig(group_name="billing", retry_max_times=3)


@pytest.fixture
def cluster() -> Iterator[TwoBrokers]:
    brokers = TwoBrokers()
    brokers.a.on(RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetTable().encode())
    brokers.b.on(RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetTable().encode())
    brokers.a.on(RequestCode.GET_KVLIST_BY_NAMESPACE, KVTable().encode())
    yield brokers
    brokers.close()


# --- decisions


def test_a_topic() -> None:
    assert topic_done(ORDERS, None) == Done(ImportOutcome.CREATED)
    assert topic_done(ORDERS, ORDERS) == SAME
    fewer = TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2, attributes={"message.type": "FIFO"})
    assert topic_done(ORDERS, fewer) == Done(ImportOutcome.CHANGED, "read queues 2 -> 4, write queues 2 -> 4")
    more = TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=8, attributes={"message.type": "FIFO"})
    assert topic_done(ORDERS, more).outcome is ImportOutcome.REFUSED, "messages in queues that nobody reads are lost"


def test_an_attribute_that_the_file_does_not_name_stays() -> None:
    known = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4, attributes={"a": "1", "b": "2"})
    wanted = TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=4, attributes={"a": "1"})
    assert topic_done(wanted, known) == SAME
    assert topic_done(ORDERS, known) == Done(ImportOutcome.CHANGED, "message.type None -> FIFO")


def test_a_group() -> None:
    assert group_done(BILLING, None) == Done(ImportOutcome.CREATED)
    assert group_done(BILLING, BILLING) == SAME
    other = SubscriptionGroupConfig(group_name="billing", attributes={"priority.factor": "7"})
    assert group_done(BILLING, other) == Done(ImportOutcome.CHANGED, "retryMaxTimes 16 -> 3")
    assert group_done(other, BILLING).detail == "retryMaxTimes 3 -> 16, priority.factor None -> 7"


@pytest.mark.parametrize(
    ("wanted", "known", "end", "outcome", "target", "says"),
    [
        (5, None, 9, ImportOutcome.CREATED, 5, ""),
        (5, 2, 9, ImportOutcome.CHANGED, 5, "2 -> 5"),
        (5, 5, 9, ImportOutcome.SAME, None, ""),
        (5, 7, 9, ImportOutcome.SAME, None, "is at 7"),
        (5, None, 3, ImportOutcome.CREATED, 3, "3, as the queue ends at 3, before 5"),
        (5, 1, 3, ImportOutcome.CHANGED, 3, "1 -> 3, as the queue ends at 3, before 5"),
        (5, 3, 3, ImportOutcome.SAME, None, "is at 3; the queue ends at 3, before 5"),
        (5, None, None, ImportOutcome.REFUSED, None, "there is no such queue"),
    ],
)
def test_an_offset_goes_forward_to_the_end_at_most(
    wanted: int, known: int | None, end: int | None, outcome: ImportOutcome, target: int | None, says: str
) -> None:
    assert offset_done(wanted, known, end) == (Done(outcome, says), target)


def test_the_queues_of_a_topic_are_one_row() -> None:
    assert joined_done({}) == joined_done({0: SAME}) == SAME
    mixed = {1: Done(ImportOutcome.CHANGED, "2 -> 5"), 0: SAME, 2: Done(ImportOutcome.CREATED)}
    assert joined_done(mixed) == Done(ImportOutcome.CHANGED, "queue 1: 2 -> 5")
    assert joined_done({**mixed, 3: Done(ImportOutcome.REFUSED, "no")}).outcome is ImportOutcome.REFUSED
    many = {number: Done(ImportOutcome.CREATED, "3, as ...") for number in range(CLUSTER_QUEUES_TOLD_MAX + 4)}
    assert joined_done(many).detail.endswith("queue 7: 3, as ...; and 4 more")


def test_a_recurring_message_that_is_paused_stays_paused() -> None:
    wanted = RecurringRow(name="daily", topic="orders", body="hello", cron="0 9 * * *")
    here = RecurringRow(name="daily", topic="orders", body="hello", cron="0 9 * * *", catch_up_max=1000, paused=True)
    assert recurring_done(wanted, None) == Done(ImportOutcome.CREATED)
    assert recurring_done(wanted, here) == Done(ImportOutcome.SAME, "it is paused here, and stays so")
    assert recurring_done(here, wanted) == Done(ImportOutcome.CHANGED, "catch_up_max, paused differ")


def test_an_entry_is_the_same_in_another_order() -> None:
    row = {"policy": "Custom", "resource": "Topic:a", "actions": ["Pub", "Sub"], "sources": [], "decision": "Allow"}
    assert policy_key(row) == policy_key({**row, "policy": "custom", "actions": ["Sub", "pub"], "decision": "allow"})
    assert policy_key(row)[0] == policy_key({**row, "decision": "Deny"})[0]
    assert policy_key(row)[1] != policy_key({**row, "decision": "Deny"})[1]


# --- commands


def rows(ran: Ran) -> dict[tuple[str, str, str], str]:
    """Outcomes by what, name and broker."""
    return {(row["what"], row["name"], row["broker"]): row["outcome"] for row in json.loads(ran.out)}


def written(path: Path, **members: Any) -> Path:
    brokers = {"broker-a": "Main", "broker-b": "Main"}
    path.write_text(json.dumps({"format": FORMAT, "version": 1, "brokers": brokers, **members}))
    return path


def test_an_export_says_what_it_lacks_and_is_for_its_owner_only(
    orbitmq: Run, cluster: TwoBrokers, tmp_path: Path
) -> None:
    have_topics(cluster.a, ORDERS, TopicConfig(topic_name="broker-a"))
    have_topics(cluster.b, ORDERS)
    have_groups(cluster.a, BILLING)
    for server in (cluster.a, cluster.b):
        server.on(RequestCode.AUTH_LIST_USER, code=ResponseCode.NO_PERMISSION, remark="nobody is asked who they are")
    file = tmp_path / "cluster.json"
    ran = orbitmq("cluster", "export", file, "-n", cluster.address)
    assert ran.code == 0
    assert "without access: " in ran.err
    assert "nobody is asked who they are" in ran.err
    assert "without recurring: " in ran.err, "these brokers have none"
    document = json.loads(file.read_text())
    assert [(row["topic"], row["brokers"]) for row in document["topics"]] == [("orders", ["broker-a", "broker-b"])]
    assert [(row["group"], row["brokers"]) for row in document["groups"]] == [("billing", ["broker-a"])]
    assert set(document["left_out"]) == {"access", "recurring"}
    assert "users" not in document
    lost = orbitmq("cluster", "export", tmp_path / "none" / "cluster.json", "-n", cluster.address)
    assert lost.code == 2
    assert f"{tmp_path}/none/cluster.json cannot be written: No such file or directory" in lost.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.glob("*cluster*")] == ["cluster.json"]


def test_passwords_are_written_when_they_are_asked_for_and_told(orbitmq: Run, cluster: TwoBrokers) -> None:
    told = [{"username": "shop", "password": "hidden-one", "userType": "Normal", "userStatus": "enable"}]
    cluster.a.on(RequestCode.AUTH_LIST_USER, json.dumps([*told, {"username": "ops"}]).encode())
    cluster.b.on(RequestCode.AUTH_LIST_USER, json.dumps(told).encode())
    for server in (cluster.a, cluster.b):
        server.on(RequestCode.AUTH_GET_ACL)
    arguments = ("cluster", "export", "-", "--only", "access", "-n", cluster.address)
    without = orbitmq(*arguments)
    assert (without.code, "hidden-one" in without.out, without.err) == (0, False, "")
    users = json.loads(without.out)["users"]
    assert [(user["user"], user["type"], user["brokers"]) for user in users] == [
        ("ops", "Normal", ["broker-a"]),
        ("shop", "Normal", ["broker-a", "broker-b"]),
    ]
    ran = orbitmq(*arguments, "--passwords")
    assert json.loads(ran.out)["users"][1]["password"] == "hidden-one"
    assert "without the passwords of 1 users" in ran.err


def test_a_part_that_is_asked_for_by_name_is_not_left_out(orbitmq: Run, cluster: TwoBrokers, tmp_path: Path) -> None:
    cluster.a.on(RequestCode.AUTH_LIST_USER, code=ResponseCode.NO_PERMISSION, remark="not you")
    file = tmp_path / "cluster.json"
    assert orbitmq("cluster", "export", file, "--only", "access", "-n", cluster.address).code == 4
    assert not file.exists()


def test_nothing_is_written_while_an_expected_broker_is_missing(
    orbitmq: Run, cluster: TwoBrokers, tmp_path: Path
) -> None:
    cluster.register({"broker-a": cluster.a.address})
    file = tmp_path / "cluster.json"
    ran = orbitmq("cluster", "export", file, "--expect", "broker-b", "-n", cluster.address)
    assert ran.code == 1
    assert "broker broker-b is expected and missing" in ran.err
    assert not file.exists()


def test_standard_output_takes_the_file_as_well(orbitmq: Run, cluster: TwoBrokers) -> None:
    ran = orbitmq("cluster", "export", "-", "--only", "topics,groups", "-n", cluster.address)
    assert (ran.code, json.loads(ran.out)["topics"], ran.err) == (0, [], "")


def test_offsets_are_those_of_groups_and_topics_that_are_there(orbitmq: Run, cluster: TwoBrokers) -> None:
    have_topics(cluster.a, ORDERS)
    have_groups(cluster.a, BILLING)
    table = {
        "orders@billing": {1: 7, 0: 5},
        "gone@billing": {0: 1},
        "orders@gone": {0: 1},
        "%RETRY%billing@billing": {0: 1},
    }
    cluster.a.on(RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsetTable(offset_table=table).encode())
    ran = orbitmq("cluster", "export", "-", "--only", "offsets", "-n", cluster.address)
    assert json.loads(ran.out)["offsets"] == [
        {"group": "billing", "topic": "orders", "broker": "broker-a", "offsets": {"0": 5, "1": 7}}
    ]


def test_an_import_says_of_each_thing_what_became_of_it(orbitmq: Run, cluster: TwoBrokers, tmp_path: Path) -> None:
    have_topics(cluster.a, ORDERS)
    have_groups(cluster.b, SubscriptionGroupConfig(group_name="billing"))
    topic = {"topic": "orders", "read_queues": 4, "write_queues": 4, "perm": 6, "attributes": {"message.type": "FIFO"}}
    file = written(
        tmp_path / "cluster.json",
        brokers={"broker-a": "Main", "broker-b": "Main", "broker-z": "Main"},
        topics=[{**topic, "brokers": ["broker-a", "broker-b", "broker-z"]}],
        groups=[{"group": "billing", "settings": {"retryMaxTimes": 3}, "brokers": ["broker-a", "broker-b"]}],
    )
    expected = {
        ("topic", "orders", "broker-a"): "the same",
        ("topic", "orders", "broker-b"): "created",
        ("topic", "orders", "broker-z"): "refused",
        ("group", "billing", "broker-a"): "created",
        ("group", "billing", "broker-b"): "changed",
    }
    dry = orbitmq("cluster", "import", file, "--dry-run", "-n", cluster.address, "--json")
    assert (dry.code, rows(dry)) == (1, expected)
    assert "1 the same, 2 created, 1 refused, 1 changed" in dry.err
    assert cluster.b.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC) == []

    ran = orbitmq("cluster", "import", file, "-n", cluster.address, "--json")
    assert (ran.code, rows(ran)) == (1, expected)
    assert [fields["topic"] for fields in cluster.b.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC)] == ["orders"]
    only = orbitmq("cluster", "import", file, "--only", "groups", "--dry-run", "-n", cluster.address, "--json")
    assert {what for what, _, _ in rows(only)} == {"group"}


def test_an_import_goes_to_brokers_of_other_names(orbitmq: Run, cluster: TwoBrokers, tmp_path: Path) -> None:
    topic = {"topic": "orders", "read_queues": 4, "write_queues": 4, "perm": 6, "brokers": ["old-a", "old-b"]}
    file = written(tmp_path / "cluster.json", brokers={"old-a": "Old", "old-b": "Old"}, topics=[topic])
    words = ("cluster", "import", file, "-n", cluster.address, "--json")
    ran = orbitmq(*words, "--rename-broker", "old-a=broker-b", "--rename-broker", "old-b=broker-a")
    assert (ran.code, rows(ran)) == (
        0,
        {("topic", "orders", "broker-a"): "created", ("topic", "orders", "broker-b"): "created"},
    )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["broker-a"], "write OLD=NEW"),
        (["broker-a="], "write OLD=NEW"),
        (["broker-a=x", "broker-a=y"], "each OLD once"),
        (["broker-z=x"], "broker 'broker-z' is not among its brokers"),
    ],
)
def test_names_that_say_nothing_are_refused(
    orbitmq: Run, cluster: TwoBrokers, tmp_path: Path, given: list[str], says: str
) -> None:
    file = written(tmp_path / "cluster.json", topics=[])
    options = [word for pair in given for word in ("--rename-broker", pair)]
    ran = orbitmq("cluster", "import", file, "-n", cluster.address, *options)
    assert (ran.code, says in ran.err) == (2, True)
    assert cluster.a.asked == []


def test_what_a_server_refuses_does_not_hold_up_the_rest(orbitmq: Run, cluster: TwoBrokers, tmp_path: Path) -> None:
    cluster.a.on(RequestCode.UPDATE_AND_CREATE_TOPIC, code=ResponseCode.NO_PERMISSION, remark="not you")
    topic = {"topic": "orders", "read_queues": 4, "write_queues": 4, "perm": 6, "brokers": ["broker-a", "broker-b"]}
    file = written(tmp_path / "cluster.json", topics=[topic])
    ran = orbitmq("cluster", "import", file, "-n", cluster.address, "--json")
    assert ran.code == 1
    assert [(row["outcome"], "not you" in row["detail"]) for row in json.loads(ran.out)] == [
        ("refused", True),
        ("created", False),
    ]


def test_an_import_that_is_cut_off_tells_what_it_did(orbitmq: Run, cluster: TwoBrokers, tmp_path: Path) -> None:
    topic = {"topic": "orders", "read_queues": 4, "write_queues": 4, "perm": 6, "brokers": ["broker-a", "broker-b"]}
    file = written(tmp_path / "cluster.json", topics=[topic])

    never = threading.Event()
    cluster.b.answers[RequestCode.UPDATE_AND_CREATE_TOPIC] = lambda _: (never.wait(30), (0, None, {}, b""))[1]
    ran = orbitmq("cluster", "import", file, "-n", cluster.address, "--timeout-ms", 300, "--json")
    never.set()
    assert (ran.code, rows(ran)) == (3, {("topic", "orders", "broker-a"): "created"})


@pytest.fixture
def consuming(cluster: TwoBrokers) -> TwoBrokers:
    """broker-a has topic orders with two queues, which end at 9 and 2, and group billing without offsets and members."""
    have_topics(cluster.a, TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=2))
    have_groups(cluster.a, BILLING)
    broker = BrokerData(broker_name="broker-a", broker_addrs={0: cluster.a.address}, cluster="Main")
    queues = QueueData(broker_name="broker-a", read_queue_nums=2, write_queue_nums=2, perm=6)
    route = TopicRouteData(queue_datas=[queues], broker_datas=[broker])
    cluster.a.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, route.encode())
    ends = {
        MessageQueue("orders", "broker-a", number): TopicOffset(min_offset=0, max_offset=end, last_update_timestamp=0)
        for number, end in ((0, 9), (1, 2))
    }
    cluster.a.on(RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable(offset_table=ends).encode())
    for server in (cluster.a, cluster.b):
        server.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, code=ResponseCode.CONSUMER_NOT_ONLINE, remark="offline")
    cluster.a.on(RequestCode.UPDATE_CONSUMER_OFFSET)
    return cluster


def test_offsets_are_put_forward_and_what_is_shorter_is_told(
    orbitmq: Run, consuming: TwoBrokers, tmp_path: Path
) -> None:
    offsets = {"group": "billing", "topic": "orders", "broker": "broker-a", "offsets": {"0": 5, "1": 5, "7": 1}}
    file = written(tmp_path / "cluster.json", offsets=[offsets])
    ran = orbitmq("cluster", "import", file, "-n", consuming.address, "--json")
    (row,) = json.loads(ran.out)
    assert (ran.code, row["outcome"]) == (1, "refused"), "of one queue"
    assert row["detail"] == "queue 1: 2, as the queue ends at 2, before 5; queue 7: there is no such queue"
    done = consuming.a.fields_of(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert [(fields["queueId"], fields["commitOffset"]) for fields in done] == [("0", "5"), ("1", "2")]


def test_a_topic_of_any_number_of_queues_takes_up_no_memory(
    orbitmq: Run, consuming: TwoBrokers, tmp_path: Path
) -> None:
    """A broker would refuse it; a dry run takes what the file says for made."""
    topic = {"topic": "orders", "read_queues": 2**31 - 1, "write_queues": 4, "perm": 6, "brokers": ["broker-a"]}
    offsets = {"group": "billing", "topic": "orders", "broker": "broker-a", "offsets": {"0": 5, "70000": 1}}
    file = written(tmp_path / "cluster.json", topics=[topic], offsets=[offsets])
    ran = orbitmq("cluster", "import", file, "--dry-run", "-n", consuming.address, "--json")
    assert json.loads(ran.out)[1]["detail"] == "queue 70000: 0, as the queue ends at 0, before 1"


def test_offsets_of_a_group_that_is_online_are_refused(orbitmq: Run, consuming: TwoBrokers, tmp_path: Path) -> None:
    from orbitmq.protocol.remoting.bodies import ConsumerConnection

    consuming.b.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection().encode())
    offsets = {"group": "billing", "topic": "orders", "broker": "broker-a", "offsets": {"0": 5}}
    ran = orbitmq(
        "cluster", "import", written(tmp_path / "c.json", offsets=[offsets]), "-n", consuming.address, "--json"
    )
    assert (ran.code, "online" in json.loads(ran.out)[0]["detail"]) == (1, True)
    assert consuming.a.fields_of(RequestCode.UPDATE_CONSUMER_OFFSET) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "it is no file of `orbitmq cluster export`"),
        (json.dumps({"format": FORMAT, "version": 2}), "a newer orbitmq wrote it"),
        (json.dumps({"format": FORMAT, "version": 1, "brokers": {}, "topics": [{}]}), "topics"),
    ],
)
def test_a_file_that_is_none_is_refused_and_no_server_asked(
    orbitmq: Run, cluster: TwoBrokers, tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(text)
    ran = orbitmq("cluster", "import", file, "-n", cluster.address)
    assert ran.code == 2
    assert says in ran.err
    assert "nothing was done" in ran.err
    assert cluster.a.asked == []


def test_a_part_that_the_file_has_not_is_said_so(orbitmq: Run, cluster: TwoBrokers, tmp_path: Path) -> None:
    file = written(tmp_path / "cluster.json", topics=[], left_out={"access": "not you"})
    without = orbitmq("cluster", "import", file, "--only", "offsets", "-n", cluster.address)
    assert (without.code, "has no offsets: it was exported without" in without.err) == (2, True)
    refused = orbitmq("cluster", "import", file, "--only", "access", "-n", cluster.address)
    assert (refused.code, "has no access: not you" in refused.err) == (2, True)
    assert orbitmq("cluster", "import", tmp_path / "none.json", "-n", cluster.address).code == 2
    assert cluster.a.asked == []
