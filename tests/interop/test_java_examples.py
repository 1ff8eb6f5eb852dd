"""RocketMQ's own example programs, unchanged: they print what they print when RocketMQ's broker serves them.

What is expected was printed with RocketMQ's broker; `INTEROP_BROKERS=java` shows that it still holds. Numbers that differ from run to run
are left out, and where a program says more or less often the same, by design, only what it says is compared.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest
from rig.drivers import JVM_FLAGS
from rig.process import ServerProcess
from rig.toolchain import NEW_VERSION, java_build

pytestmark = pytest.mark.java

PACKAGE = "org.apache.rocketmq.example."
FIRST = [
    "ordermessage.Producer", "simple.Producer", "filter.TagFilterProducer", "filter.SqlFilterProducer", "batch.SimpleBatchProducer",
    "ordermessage.Consumer", "filter.TagFilterConsumer", "broadcast.PushConsumer", "simple.PopConsumer", "transaction.TransactionProducer",
]  # fmt: skip
"""Producers come first, because consumers look for new topics every 30 s only. The last one asks for half a minute."""
SECOND = ["filter.SqlFilterConsumer"]
"""It uses the group of the tag filter's consumer with another subscription: one must have gone."""
LIMIT_S = 180


VARYING = re.compile(
    r"((?:msgId|offsetMsgId|UNIQ_KEY|bornTimestamp|storeTimestamp|bornHost|storeHost|CONSUME_START_TIME|1ST_POP_TIME|commitLogOffset"
    r"|MAX_OFFSET|queueId|queueOffset|transactionId|bodyCRC|reconsumeTimes)=)[^\]}]*?(?=\]|\}|, [\w()]+=)"
)
NUMBERED = re.compile(r"(Thread(?:_\w+)?_|KEY|OrderID|RocketMQ |\ba=)\d+")
PLACE = re.compile(r"queueId=(\d+).*?queueOffset=(\d+)")
ORDERED = re.compile(r"please_rename_unique_group_name_3_.*" + PLACE.pattern)


def sent(topic: str) -> str:
    """What a producer prints about a message, as `bare` leaves it."""
    place = f"MessageQueue [topic={topic}, brokerName=broker-a, queueId=#]"
    return f"SendResult [sendStatus=SEND_OK, msgId=#, offsetMsgId=#, messageQueue={place}, queueOffset=#, recallHandle=null]"


def received(thread: str, topic: str, size: int, properties: str, body: str) -> str:
    """What a consumer prints about a message, as `bare` leaves it. A star in `properties` stands for what the broker adds."""
    properties = properties.replace("*", "UNIQ_KEY=#, CLUSTER=DefaultCluster")
    return (
        f"ConsumeMessageThread_{thread}# Receive New Messages: [MessageExt [brokerName=broker-a, queueId=#, storeSize={size}, "
        "queueOffset=#, sysFlag=0, bornTimestamp=#, bornHost=#, storeTimestamp=#, storeHost=#, msgId=#, commitLogOffset=#, "
        "bodyCRC=#, reconsumeTimes=#, preparedTransactionOffset=0, "
        f"toString()=Message{{topic='{topic}', flag=0, properties={{{properties}}}, body={body}, transactionId=#}}]]"
    )


BEGUN, REGION, END = "CONSUME_START_TIME=#, ", "MSG_REGION=DefaultRegion, ", "WAIT=true, TRACE_ON=true"
GROUP = "please_rename_unique_group_name_"
FIRST_PRINTS = Counter(
    {
        sent("TopicTestjjj"): 100, sent("TopicTest"): 128, sent("TagFilterTest"): 60, sent("SqlFilterTest"): 10,
        sent("BatchTest"): 1, sent("TopicTest1234"): 10,
        "Consumer Started.": 3, "Broadcast Consumer Started.": 1,
        received(
            f"{GROUP}3_", "TopicTest", 275, f"{REGION}*, MIN_OFFSET=0, TAGS=TagA, KEYS=OrderID#, {END}, MAX_OFFSET=#", "Hello world"
        ): 128,
        **{
            received(
                GROUP, "TagFilterTest", 263, f"{BEGUN}{REGION}*, MIN_OFFSET=0, TAGS={tag}, {END}, MAX_OFFSET=#", "Hello world"
            ): 20
            for tag in ("TagA", "TagC")
        },
        received(
            f"{GROUP}1_", "TopicTest", 275, f"{BEGUN}{REGION}*, MIN_OFFSET=0, TAGS=TagA, KEYS=OrderID#, {END}, MAX_OFFSET=#", "Hello world"
        ): 128,
        received(
            "", "TopicTest", 275,
            f"{BEGUN}{REGION}1ST_POP_TIME=#, *, POP_CK=# # # # # broker-a # #, TAGS=TagA, KEYS=OrderID#, {END}", "Hello world",
        ): 128,
    }
)  # fmt: skip
"""Printed lines, and about how many messages or by how many programs each."""
SECOND_PRINTS = Counter(
    {
        "Consumer Started.": 1,
        **{
            received(
                GROUP, "SqlFilterTest", 272, f"{BEGUN}{REGION}*, MIN_OFFSET=0, TAGS={tag}, WAIT=true, a=#, TRACE_ON=true, MAX_OFFSET=#",
                "Hello RocketMQ #",
            ): count
            for tag, count in (("TagA", 2), ("TagB", 1))
        },
    }
)  # fmt: skip
COMMITTED = {b"Hello RocketMQ 1", b"Hello RocketMQ 4", b"Hello RocketMQ 7"}
"""Of every three transactions, the program commits the second, rolls back the third, and leaves the first undecided."""


@contextmanager
def programs(names: list[str], broker: BrokerUnderTest, folder: Path) -> Iterator[Callable[[], list[str]]]:
    """Run programs one after another in one JVM; the function answers the lines that they printed so far."""
    build = java_build(NEW_VERSION)
    folder.mkdir()
    words = [build.java, *JVM_FLAGS, f"-Duser.home={folder}", "-cp", build.classpath, "interop.Programs"]
    output = folder / "printed.txt"
    process = ServerProcess(
        [*words, *(PACKAGE + name for name in names)], output, env={"NAMESRV_ADDR": broker.name_server}
    )

    def printed() -> list[str]:
        return output.read_text(errors="replace").replace("recallHandle=null]", "recallHandle=null]\n").splitlines()

    try:
        yield printed
    finally:
        process.kill()


def bare(line: str) -> str:
    """A printed line without what differs from run to run, its body as text."""
    line = re.sub(r"body=\[([\d, -]+)\]", lambda found: "body=" + bytes(map(int, found[1].split(", "))).decode(), line)
    line = re.sub(r"(?<=POP_CK=)[^,]*", lambda found: re.sub(r"\d+", "#", found[0]), line)
    return NUMBERED.sub(r"\1#", VARYING.sub(r"\1#", line)).strip()


def summary(lines: list[str]) -> Counter[str]:
    """Bare lines, each with the number of messages that it was printed about, however often, or of times when about none."""
    seen: set[tuple[str, object]] = set()
    for number, line in enumerate(lines):
        place = PLACE.search(line)
        if line.strip():
            seen.add((bare(line), place.groups() if place else number))
    return Counter(line for line, _ in seen)


def wait_printed(printed: Callable[[], list[str]], expected: Counter[str]) -> None:
    end = time.monotonic() + LIMIT_S
    while (found := summary(printed())) != expected and time.monotonic() < end:
        time.sleep(0.5)
    assert found == expected


def test_example_programs_print_what_they_print_with_rocketmq(
    broker: BrokerUnderTest, available: Callable[[Callable[[], object]], None], tmp_path: Path
) -> None:
    available(lambda: java_build(NEW_VERSION))
    with programs(FIRST, broker, tmp_path / "first") as printed:
        wait_printed(printed, FIRST_PRINTS)
        assert_in_order([(int(queue), int(offset)) for queue, offset in ORDERED.findall("\n".join(printed()))])
        end, committed = time.monotonic() + LIMIT_S, set[bytes]()
        while committed != COMMITTED and time.monotonic() < end:
            time.sleep(0.5)
            with broker.wire() as wire:
                committed = {record.body for queue in range(4) for record in wire.read_queue("TopicTest1234", queue)}
        assert committed == COMMITTED
    with programs(SECOND, broker, tmp_path / "second") as printed:
        wait_printed(printed, SECOND_PRINTS)


def assert_in_order(places: list[tuple[int, int]]) -> None:
    """Each queue was consumed without gaps; its last message may have come again, as the program now and then demands."""
    expected: Counter[int] = Counter()
    for queue, offset in places:
        assert offset in (expected[queue], expected[queue] - 1)
        expected[queue] = offset + 1
