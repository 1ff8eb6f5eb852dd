"""mqadmin 5.3.3 at work: what its sub-commands print about a broker, and what they change on it.

One broker of each kind under test, a consumer that stays online, twenty messages; then the commands an operator uses in
a day. Each test judges names, numbers and states, not only that nothing failed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rig.brokers import BROKER_NAME, CLUSTER_NAME, KINDS_UNDER_TEST, BrokerUnderTest, Kind
from rig.drivers import Driver, Event, java_driver
from rig.mqadmin import MqAdmin
from rig.toolchain import BROKER_VERSION, java_build

pytestmark = pytest.mark.java

TOPIC, GROUP, PRODUCERS, COUNT, QUEUES = "AdminTopic", "AdminGroup", "InteropProducer", 20, 4
WAIT_S = 180
"""RocketMQ samples its counters every 10 s, and clients commit their offsets every 5 s."""


class Scene:
    """A broker with traffic, and the tool beside it."""

    def __init__(self, broker: BrokerUnderTest, tool: MqAdmin, client: Driver) -> None:
        self.broker, self.tool, self.client = broker, tool, client
        self.address = f"127.0.0.1:{broker.broker_port}"
        tool.run("updateTopic", "-c", CLUSTER_NAME, "-t", TOPIC, "-r", str(QUEUES), "-w", str(QUEUES))
        events = client.command("produce", topic=TOPIC, count=COUNT, prefix="admin", key="Key", tag="TagA")
        self.sent = [event for event in events if event["event"] == "sent"]
        client.command("consume", group=GROUP, topic=TOPIC, expression="TagA || TagB", **{"from": "first"})
        client.wait(lambda heard: len(received(heard)) >= COUNT, WAIT_S, "arrival")
        self.eventually(self.all_committed, "committed offsets")

    def progress(self, group: str = GROUP) -> dict[str, Any]:
        """What consumerProgress prints: `queues` maps a queue id to (broker offset, consumer offset)."""
        text = self.tool.run("consumerProgress", "-g", group)
        rows = [line.split() for line in text.splitlines() if line.startswith(TOPIC)]
        total = re.search(r"Consume Diff Total: (-?\d+)", text)
        assert total is not None, text
        return {"queues": {int(row[2]): (int(row[3]), int(row[4])) for row in rows}, "diff": int(total[1])}

    def all_committed(self) -> bool:
        progress = self.progress()
        return len(progress["queues"]) == QUEUES and progress["diff"] == 0

    def route(self, topic: str) -> str:
        return self.tool.try_run("topicRoute", "-t", topic)

    def client_id(self) -> str:
        for line in self.tool.run("consumerConnection", "-g", GROUP).splitlines():
            if "JAVA" in line:
                return line.split()[0]
        raise AssertionError("no consumer is online")

    def runtime(self) -> dict[str, str]:
        lines = self.tool.run("brokerStatus", "-b", self.address).splitlines()
        return dict(
            part.split(":", 1) for part in (re.sub(r"\s*: ", ":", line, count=1) for line in lines) if ":" in part
        )

    @staticmethod
    def eventually(true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
            time.sleep(0.5)


def received(events: list[Event]) -> list[Event]:
    return [event for event in events if event["event"] == "received"]


@pytest.fixture(scope="module", params=KINDS_UNDER_TEST, ids=[kind.value for kind in KINDS_UNDER_TEST])
def scene(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    available: Callable[[Callable[[], object]], None],
) -> Iterator[Scene]:
    available(lambda: java_build(BROKER_VERSION))
    folder = tmp_path_factory.mktemp(f"mqadmin-{request.param.value}")
    with (
        BrokerUnderTest(request.param, folder / "broker") as broker,
        MqAdmin(broker.name_server, folder / "tool") as tool,
        java_driver(BROKER_VERSION, broker.name_server, folder / "client") as client,
    ):
        yield Scene(broker, tool, client)


# --- cluster and broker ---------------------------------------------------------------------------------------------


def test_the_cluster_list_shows_the_broker_and_its_traffic(scene: Scene) -> None:
    (row,) = scene.tool.rows("clusterList")
    assert row[:5] == [CLUSTER_NAME, BROKER_NAME, "0", scene.address, "V5_3_3"]
    assert row[-1] == "true"
    assert 0 <= float(row[-2]) <= 1  # used share of the disk

    def counted() -> bool:
        (totals,) = scene.tool.rows("clusterList", "-m")
        assert totals[:2] == [CLUSTER_NAME, BROKER_NAME]
        assert totals[2:4] == ["0", "0"]
        return int(totals[4]) >= COUNT and int(totals[5]) >= COUNT

    scene.eventually(counted, "totals of today")


def test_the_broker_status_has_every_figure_that_readers_parse(scene: Scene) -> None:
    rates = ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps")
    status = scene.runtime()
    # RocketMQ leaves out what it is too young to know: the rate over ten minutes comes after ten minutes.
    known = 1 if scene.broker.kind is Kind.JAVA else 3
    for name in rates:
        assert len([float(one) for one in status[name].split()]) >= known, name
    for name in ("msgPutTotalTodayNow", "msgGetTotalTodayNow", "putMessageTimesTotal", "commitLogMaxOffset"):
        assert int(status[name]) >= COUNT, name
    for name in ("putLatency99", "putLatency999", "commitLogDiskRatio", "timerEnqueueTps", "timerDequeueTps"):
        assert float(status[name]) >= 0, name
    ranges = re.findall(r"\[[^\]]+\]:(\d+)", status["putMessageDistributeTime"])
    if scene.broker.kind is Kind.ORBITMQ or ranges:  # RocketMQ's first distribution comes after a minute
        assert len(ranges) == 13
        assert sum(map(int, ranges)) > 0
    assert (status["brokerVersionDesc"], status["brokerActive"]) == ("V5_3_3", "true")


def test_settings_are_shown_changed_and_protected(scene: Scene) -> None:
    def setting(name: str) -> str:
        lines = scene.tool.run("getBrokerConfig", "-b", scene.address).splitlines()
        return next(line.partition("=")[2].strip() for line in lines if line.split(" ")[0] == name)

    assert setting("brokerName") == BROKER_NAME
    assert setting("fileReservedTime") == "72"
    scene.tool.run("updateBrokerConfig", "-b", scene.address, "-k", "fileReservedTime", "-v", "48")
    assert setting("fileReservedTime") == "48"
    refused = scene.tool.try_run("updateBrokerConfig", "-b", scene.address, "-k", "brokerConfigPath", "-v", "elsewhere")
    assert "CODE: 16" in refused


def test_the_write_permission_is_wiped_and_given_back(scene: Scene) -> None:
    names = scene.broker.name_server
    assert "OK" in scene.tool.run("wipeWritePerm", "-b", BROKER_NAME, "-n", names)
    assert '"perm":4' in scene.route(TOPIC)
    assert "OK" in scene.tool.run("addWritePerm", "-b", BROKER_NAME, "-n", names)
    assert '"perm":6' in scene.route(TOPIC)


@pytest.mark.parametrize("command", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"])
def test_cleaning_up_by_hand_leaves_what_is_needed(scene: Scene, command: str) -> None:
    assert "success" in scene.tool.run(command, "-b", scene.address)
    stored = scene.tool.rows("topicStatus", "-t", TOPIC)
    assert [row[:2] for row in stored[:QUEUES]] == [[BROKER_NAME, str(queue)] for queue in range(QUEUES)]
    assert sum(int(row[3]) for row in stored[:QUEUES]) >= COUNT


def test_a_broker_without_slaves_says_so(scene: Scene) -> None:
    status = scene.tool.run("haStatus", "-b", scene.address)
    assert re.search(r"#SlaveNum\s+0\b", status), status


def test_what_cannot_be_done_is_refused_by_name(scene: Scene) -> None:
    """RocketMQ can advise the kernel about reading ahead in the commit log; orbitmq refuses, and says what."""
    answer = scene.tool.try_run("setCommitLogReadAheadMode", "-b", scene.address, "-m", "0")
    if scene.broker.kind is Kind.JAVA:
        assert "success" in answer
    else:
        assert "CODE: 3" in answer
        assert "SET_COMMITLOG_READ_MODE" in answer


# --- topics ---------------------------------------------------------------------------------------------------------


def test_a_topic_lives_from_creation_to_deletion(scene: Scene) -> None:
    tool, topic = scene.tool, "ShortLived"
    created = tool.try_run("updateTopic", "-b", scene.address, "-t", topic, "-r", "2", "-w", "2", "-o", "true")
    assert f"create topic to {scene.address} success" in created
    assert "order=true" in created
    assert topic in tool.run("topicList").split()
    changed = tool.run("updateTopicPerm", "-b", scene.address, "-t", topic, "-p", "4")
    assert "from 6 to 4" in changed
    assert '"perm":4' in scene.route(topic)
    assert tool.run("topicClusterList", "-t", topic).split() == [CLUSTER_NAME]
    assert f"{BROKER_NAME}:2" in tool.run("updateOrderConf", "-t", topic, "-m", "get")
    tool.run("deleteTopic", "-c", CLUSTER_NAME, "-t", topic)
    assert "CODE: 17" in scene.route(topic)
    assert topic not in tool.run("topicList").split()


def test_the_topic_list_of_a_cluster_names_the_consumers(scene: Scene) -> None:
    rows = scene.tool.rows("topicList", "-c")
    assert [CLUSTER_NAME, TOPIC, GROUP] in rows


def test_route_and_status_of_a_topic(scene: Scene) -> None:
    route = scene.tool.run("topicRoute", "-t", TOPIC, "-l")
    row = next(line.split() for line in route.splitlines() if line.startswith(CLUSTER_NAME))
    assert row == [CLUSTER_NAME, BROKER_NAME, f"{{0={scene.address}}}", str(QUEUES), str(QUEUES), "6"]
    status = scene.tool.run("topicStatus", "-t", TOPIC)
    rows = [line.split() for line in status.splitlines() if line.startswith(BROKER_NAME)]
    assert [(int(row[1]), int(row[2])) for row in rows] == [(queue, 0) for queue in range(QUEUES)]
    assert all(int(row[3]) >= COUNT // QUEUES for row in rows)


def test_queues_are_allocated_to_invented_clients(scene: Scene) -> None:
    text = scene.tool.run("allocateMQ", "-t", TOPIC, "-i", "10.0.0.1,10.0.0.2")
    assert text.count('"queueId"') == QUEUES
    assert set(re.findall(r"10\.0\.0\.\d", text)) == {"10.0.0.1", "10.0.0.2"}


def test_units_of_a_consume_queue_are_shown_with_the_subscription(scene: Scene) -> None:
    text = scene.tool.run("queryCq", "-t", TOPIC, "-q", "0", "-i", "1", "-c", "2", "-b", scene.address, "-g", GROUP)
    assert '"subString":"TagA || TagB"' in text
    assert re.findall(r"idx: (\d+)", text) == ["1", "2"]
    assert set(re.findall(r"tagsCode=(-?\d+)", text)) == {"2598919"}  # of TagA


# --- groups and clients ---------------------------------------------------------------------------------------------


def test_a_group_is_set_up_shown_and_removed(scene: Scene) -> None:
    tool, group = scene.tool, "ShortGroup"
    tool.run("updateSubGroup", "-c", CLUSTER_NAME, "-g", group, "-r", "5", "-q", "2", "-s", "true")
    shown = dict(re.findall(r"(\w+)\s+=\s+(\S*)", tool.run("getConsumerConfig", "-g", group)))
    assert (shown["groupName"], shown["retryMaxTimes"], shown["retryQueueNums"]) == (group, "5", "2")
    tool.run("deleteSubGroup", "-c", CLUSTER_NAME, "-g", group)
    assert group not in tool.run("getConsumerConfig", "-g", group)


def test_consumers_and_producers_are_listed(scene: Scene) -> None:
    connection = scene.tool.run("consumerConnection", "-g", GROUP)
    row = next(line.split() for line in connection.splitlines() if "JAVA" in line)
    assert row[2:] == ["JAVA", "V5_3_3"]
    assert re.search(rf"^{TOPIC}\s+TagA \|\| TagB$", connection, re.MULTILINE)
    for line in ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"):
        assert line in connection
    producers = scene.tool.run("producerConnection", "-g", PRODUCERS, "-t", TOPIC)
    assert "JAVA" in producers
    assert f"producer group ({PRODUCERS})" in scene.tool.run("producer", "-b", scene.address)


def test_a_consumer_tells_what_it_does(scene: Scene) -> None:
    everyone = scene.tool.run("consumerStatus", "-g", GROUP)
    assert scene.client_id() in everyone
    assert "Rebalance OK" in everyone
    one = scene.tool.run("consumerStatus", "-g", GROUP, "-i", scene.client_id(), "-s", "true")
    assert "PROP_CLIENT_VERSION" in one
    assert re.search(rf"{TOPIC}\s+{BROKER_NAME}\s+0\s", one)
    assert "java.lang.Thread.State" in one or "TID:" in one  # the stacks of its threads
    gone = scene.tool.try_run("consumerStatus", "-g", GROUP, "-i", "nobody@1")
    assert "CODE: 1 " in gone


def test_progress_of_groups(scene: Scene) -> None:
    progress = scene.progress()
    assert sorted(progress["queues"]) == list(range(QUEUES))
    assert progress["diff"] == sum(end - done for end, done in progress["queues"].values())
    row = next(row for row in scene.tool.rows("consumerProgress") if row[0] == GROUP)
    assert row[1:5] == ["1", "V5_3_3", "PUSH", "CLUSTERING"]
    everything = scene.tool.run("brokerConsumeStats", "-b", scene.address)
    rows = [line.split() for line in everything.splitlines() if line.startswith(TOPIC)]
    assert {(row[1], int(row[3])) for row in rows} >= {(GROUP, queue) for queue in range(QUEUES)}


def test_statistics_of_a_topic(scene: Scene) -> None:
    def counted() -> bool:
        rows = [row for row in scene.tool.rows("statsAll", "-t", TOPIC) if row[:2] == [TOPIC, GROUP]]
        return bool(rows) and int(rows[0][5]) >= COUNT and int(rows[0][6]) >= COUNT

    scene.eventually(counted, "messages of the last day")


# --- messages -------------------------------------------------------------------------------------------------------


def assert_is(text: str, event: Event) -> None:
    """The printed message is the one that the client sent."""
    fields = dict(re.findall(r"^([A-Z][A-Za-z ]*?):\s+(.*)$", text, re.MULTILINE))
    assert fields["Topic"] == TOPIC
    assert (int(fields["Queue ID"]), int(fields["Queue Offset"])) == (event["queueId"], event["queueOffset"])
    assert f"UNIQ_KEY={event['msgId']}" in fields["Properties"]
    assert fields["Tags"] == "[TagA]"


def test_a_message_is_found_by_everything_that_names_it(scene: Scene) -> None:
    tool, event = scene.tool, scene.sent[7]
    by_key = tool.run("queryMsgByKey", "-t", TOPIC, "-k", "Key-7")
    assert re.search(rf"{event['msgId']}\s+{event['queueId']}\s+{event['queueOffset']}", by_key)
    assert_is(tool.run("queryMsgByUniqueKey", "-t", TOPIC, "-i", event["msgId"]), event)
    assert_is(tool.run("queryMsgById", "-t", TOPIC, "-i", event["offsetMsgId"]), event)
    place = ("-b", BROKER_NAME, "-i", str(event["queueId"]), "-o", str(event["queueOffset"]))
    found = tool.run("queryMsgByOffset", "-t", TOPIC, *place)
    assert_is(found, event)
    assert f"consumerGroup={GROUP}, trackType=CONSUMED" in found


def test_messages_are_printed_by_topic_and_by_queue(scene: Scene) -> None:
    known = {event["msgId"] for event in scene.sent}
    assert known <= set(re.findall(r"MSGID: (\w+)", scene.tool.run("printMsg", "-t", TOPIC)))
    first = [event["msgId"] for event in scene.sent if event["queueId"] == 0]
    by_queue = scene.tool.run("printMsgByQueue", "-t", TOPIC, "-a", BROKER_NAME, "-i", "0", "-p", "true", "-d", "true")
    assert re.findall(r"MSGID: (\w+)", by_queue)[: len(first)] == first
    some = scene.tool.run("consumeMessage", "-t", TOPIC, "-b", BROKER_NAME, "-i", "0", "-o", "0", "-c", "3")
    assert re.findall(r"MSGID: (\w+)", some) == first[:3]


def test_a_consumer_is_made_to_consume_one_message_again(scene: Scene) -> None:
    event = scene.sent[3]
    before = len(scene.client.events("received", msgId=event["msgId"]))
    done = scene.tool.run("queryMsgById", "-t", TOPIC, "-i", event["offsetMsgId"], "-g", GROUP, "-d", scene.client_id())
    assert "CR_SUCCESS" in done
    scene.client.wait(
        lambda _: len(scene.client.events("received", msgId=event["msgId"])) == before + 1, WAIT_S, "the message again"
    )


def test_messages_are_sent_by_the_tool(scene: Scene) -> None:
    (row,) = scene.tool.rows("sendMessage", "-t", TOPIC, "-p", "from the tool", "-k", "ToolKey", "-c", "TagB")
    assert (row[0], row[2]) == (BROKER_NAME, "SEND_OK")
    scene.client.wait(lambda heard: any(e["body"] == "from the tool" for e in received(heard)), WAIT_S, "the message")
    status = scene.tool.run("sendMsgStatus", "-b", BROKER_NAME, "-c", "2", "-s", "100")
    assert status.count("SEND_OK") >= 2
    rows = scene.tool.rows("checkMsgSendRT", "-t", TOPIC, "-a", "3", "-s", "100")
    assert [row[2] for row in rows[:3]] == ["true"] * 3


def test_lists_of_topics_and_groups_come_from_files(scene: Scene, tmp_path: Path) -> None:
    topics = [{"topicName": f"Listed{n}", "readQueueNums": n, "writeQueueNums": n, "perm": 6} for n in (1, 2)]
    (tmp_path / "topics.json").write_text(json.dumps(topics))
    scene.tool.run("updateTopicList", "-b", scene.address, "-f", str(tmp_path / "topics.json"))
    assert '"readQueueNums":2' in scene.route("Listed2")
    groups = [{"groupName": f"ListedGroup{n}", "retryMaxTimes": n} for n in (1, 2)]
    (tmp_path / "groups.json").write_text(json.dumps(groups))
    scene.tool.run("updateSubGroupList", "-b", scene.address, "-f", str(tmp_path / "groups.json"))
    shown = dict(re.findall(r"(\w+)\s+=\s+(\S*)", scene.tool.run("getConsumerConfig", "-g", "ListedGroup2")))
    assert shown["retryMaxTimes"] == "2"


# --- offsets --------------------------------------------------------------------------------------------------------


def test_offsets_are_cloned_to_another_group(scene: Scene) -> None:
    tool, clone = scene.tool, "ClonedGroup"
    missing = tool.try_run("cloneGroupOffset", "-s", GROUP, "-d", clone, "-t", TOPIC)
    assert "CODE: 26" in missing
    tool.run("updateSubGroup", "-c", CLUSTER_NAME, "-g", clone)
    tool.run("updateTopic", "-c", CLUSTER_NAME, "-t", f"%RETRY%{clone}", "-r", "1", "-w", "1")
    # A client commits every few seconds: what tests before this one sent would be committed between the two readings.
    scene.eventually(scene.all_committed, "committed offsets")
    tool.run("cloneGroupOffset", "-s", GROUP, "-d", clone, "-t", TOPIC)
    assert {queue: done for queue, (_, done) in scene.progress(clone)["queues"].items()} == {
        queue: done for queue, (_, done) in scene.progress()["queues"].items()
    }


def test_a_group_goes_back_to_the_beginning_and_forward_to_the_end(scene: Scene) -> None:
    before = len(received(scene.client.events("received")))
    rows = scene.tool.rows("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
    assert sorted(row for row in rows if row[0] == BROKER_NAME) == [[BROKER_NAME, str(q), "0"] for q in range(QUEUES)]
    scene.client.wait(lambda heard: len(received(heard)) >= before + COUNT, WAIT_S, "everything again")
    ends = {queue: end for queue, (end, _) in scene.progress()["queues"].items()}
    rows = scene.tool.rows("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
    assert {int(row[1]): int(row[2]) for row in rows if row[0] == BROKER_NAME} == ends


# --- name server ----------------------------------------------------------------------------------------------------


def test_the_key_value_table_and_the_settings_of_the_name_server(scene: Scene) -> None:
    tool = scene.tool
    assert "success" in tool.run("updateKvConfig", "-s", "Space", "-k", "key", "-v", "value")
    assert "success" in tool.run("deleteKvConfig", "-s", "Space", "-k", "key")
    tool.run("updateOrderConf", "-t", TOPIC, "-m", "put", "-v", f"{BROKER_NAME}:4")
    assert f"orderConf=[{BROKER_NAME}:4]" in tool.run("updateOrderConf", "-t", TOPIC, "-m", "get")
    tool.run("updateOrderConf", "-t", TOPIC, "-m", "delete")
    assert "CODE: 22" in tool.try_run("updateOrderConf", "-t", TOPIC, "-m", "get")
    tool.run("updateNamesrvConfig", "-k", "scanNotActiveBrokerInterval", "-v", "6000")
    shown = dict(re.findall(r"(\w+)\s+=\s+(\S*)", tool.run("getNamesrvConfig")))
    assert (shown["scanNotActiveBrokerInterval"], shown["listenPort"]) == ("6000", str(scene.broker.nameserver_port))


def test_everything_is_exported(scene: Scene, tmp_path: Path) -> None:
    """The export commands read the tables of the broker whole."""
    for command, file in (("exportMetadata", "metadata.json"), ("exportConfigs", "configs.json")):
        scene.tool.run(command, "-c", CLUSTER_NAME, "-f", str(tmp_path))
        assert BROKER_NAME in (text := (tmp_path / file).read_text()) or TOPIC in text
    scene.tool.run("exportMetrics", "-c", CLUSTER_NAME, "-f", str(tmp_path))
    assert '"totalTps"' in (tmp_path / "metrics.json").read_text()
