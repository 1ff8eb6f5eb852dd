"""A master and a slave of two kinds: RocketMQ's broker copies ours, ours copies RocketMQ's, and either takes over from the other.

RocketMQ 5.3.3 asks for tables a minute after its start, so its slave is started first and looked at last. It finds its master through
the name server; with a `haMasterAddress` of its own it follows nobody. RocketMQ 4.9.7 needs that setting, or the name server, and asks
for tables after three seconds.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from rig.brokers import Kind
from rig.pairs import Member, Pair, send, until
from rig.popping import GROUP as POPPERS
from rig.popping import POP_SETTINGS, Consumer, consume, wait_stored
from rig.popping import TOPIC as POPPED
from rig.toolchain import BROKER_VERSION, OLD_BROKER_VERSION, java_build
from rig.wire import Sent, Wire, records

pytestmark = pytest.mark.java

TOPIC, GROUP = "orders", "readers"
TWO_COPIES = {"brokerRole": "SYNC_MASTER", "totalReplicas": "2", "inSyncReplicas": "2"}
POPS: dict[str, str] = {**POP_SETTINGS, "transactionTimeOut": "600000"}
ORDER_INFO = "consumerOrderInfo.json"
ORDERED, INVISIBLE_MS = "in-order", 120_000
POP, ACK = 200050, 200051
PREPARED, COMMIT, ROLL_BACK, END_TRANSACTION = 4, 8, 12, 37
UPDATE_BROKER_CONFIG = 25
Available = Callable[[Callable[[], object]], None]


class Account:
    """What was sent, when each is due, and what was found of it."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.due_ms: dict[bytes, int] = {}

    def send(self, member: Member, name: str, count: int, *, code: int = 0, level: int = 0, after_ms: int = 0) -> None:
        """`level` 3 is 10 s, 4 is 30 s."""
        for number in range(count):
            body = b"%s-%d" % (name.encode(), number)
            now_ms = int(time.time() * 1000)
            properties = {"DELAY": str(level)} if level else {}
            if after_ms:
                properties["TIMER_DELIVER_MS"] = str(now_ms + after_ms)
            assert send(member, TOPIC, body, properties) == code
            self.due_ms[body] = now_ms + after_ms + {0: 0, 1: 1_000, 3: 10_000, 4: 30_000}[level]

    def sent_until_copied(self, member: Member, name: str) -> None:
        """A slave counts when it has caught up: each try has a name of its own."""
        for number in range(600):
            body = b"%s-%d" % (name.encode(), number)
            self.due_ms[body] = 0
            if send(member, TOPIC, body) == 0:
                return
            time.sleep(0.1)
        raise AssertionError("the slave does not keep up")

    def judge(self, member: Member, *, may_repeat: tuple[str, ...] = ()) -> None:
        """Wait until everything is there: each once, but for those with these names, and not before it was due."""
        latest_s = max(self.due_ms.values()) / 1000 - time.time()
        wanted = set(self.due_ms)
        until(lambda: wanted <= set(member.bodies(TOPIC)), "everything that was sent", max(latest_s, 0) + 60)
        with member.wire() as wire:
            records = wire.read_queue(TOPIC, 0)
        found = Counter(record.body for record in records if not record.body.decode().startswith(may_repeat))
        assert {body: count for body, count in found.items() if count > 1} == {}
        assert {record.body for record in records if record.store_at < self.due_ms.get(record.body, 0)} == set()


def prepare(master: Member) -> None:
    with master.wire() as wire:
        wire.create_topic(TOPIC, 2)
        wire.create_topic(POPPED, 1)
        wire.create_topic(ORDERED, 1)
        wire.create_group(GROUP, 5)
        wire.create_group(POPPERS, 16)


def half(wire: Wire, body: bytes) -> Sent:
    """A message whose transaction is open."""
    properties = {"TRAN_MSG": "true", "PGROUP": "judge", "UNIQ_KEY": body.decode(), "WAIT": "true"}
    return wire.send(TOPIC, 0, body, properties, sys_flag=PREPARED)


def decide(wire: Wire, sent: Sent, decision: int) -> None:
    """End its transaction, as its producer does at whichever broker has the log."""
    wire.call(
        END_TRANSACTION,
        {
            "producerGroup": "judge", "tranStateTableOffset": str(sent.queue_offset), "commitLogOffset": str(int(sent.msg_id[16:], 16)),
            "commitOrRollback": str(decision), "fromTransactionCheck": "false", "msgId": "", "transactionId": "",
        },
    )  # fmt: skip


def pop_in_order(wire: Wire, attempt: str) -> list[str]:
    """Receipts of the next two messages."""
    head, body = wire.ask(
        POP,
        {
            "consumerGroup": GROUP, "topic": ORDERED, "queueId": "0", "maxMsgNums": "2", "invisibleTime": str(INVISIBLE_MS),
            "pollTime": "0", "bornTime": str(int(time.time() * 1000)), "initMode": "0", "expType": "TAG",
            "exp": "*", "order": "true", "attemptId": attempt,
        },
    )  # fmt: skip
    said, offsets = head.get("extFields", {}), [message.queue_offset for message in records(body)]
    words = f"{INVISIBLE_MS} {said.get('reviveQid')} 0 broker-a 0"
    return [f"{offsets[0]} {said['popTime']} {words} {offset}" for offset in offsets]


def acknowledge_in_order(wire: Wire, receipt: str) -> int:
    """The offset of the group afterwards."""
    offset = receipt.rsplit(" ", 1)[1]
    wire.call(ACK, {"consumerGroup": GROUP, "topic": ORDERED, "queueId": "0", "extraInfo": receipt, "offset": offset})
    return wire.committed(GROUP, ORDERED, 0)


def has_tables(slave: Member, offset: int) -> bool:
    """Whether the files of a slave say what was made at its master."""
    topics = slave.config("topics.json").get("topicConfigTable", {})
    groups = slave.config("subscriptionGroup.json").get("subscriptionGroupTable", {})
    offsets = slave.config("consumerOffset.json").get("offsetTable", {})
    return (
        topics.get(TOPIC, {}).get("readQueueNums") == 2
        and groups.get(GROUP, {}).get("retryMaxTimes") == 5
        and offsets.get(f"{TOPIC}@{GROUP}", {}).get("0") == offset
    )


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, available: Available) -> Iterator[tuple[Pair, Pair]]:
    """A master of ours and one of RocketMQ 5.3.3, synchronous ones at first, each with a slave of the other kind."""
    available(lambda: java_build(BROKER_VERSION))
    folder = tmp_path_factory.mktemp("pairs")
    made = [Pair(folder / "ours", Kind.ORBITMQ, Kind.JAVA), Pair(folder / "theirs", Kind.JAVA, Kind.ORBITMQ)]
    try:
        for pair in made:
            pair.first.launch_master(**TWO_COPIES, **POPS)
        made[0].first.wait()
        made[0].second.launch_slave(**POPS)
        made[1].first.wait()
        made[1].second.launch_slave(**POPS)
        for pair in made:
            pair.second.wait()
            prepare(pair.first)
        with made[0].first.wire() as wire:
            wire.commit(GROUP, TOPIC, 0, 7)
        yield made[0], made[1]
    finally:
        for pair in made:
            pair.kill()


def test_ours_follows_rocketmq_and_takes_over(pairs: tuple[Pair, Pair]) -> None:
    pair = pairs[1]
    master, slave, account = pair.first, pair.second, Account(pair)
    account.sent_until_copied(master, "first")
    account.send(master, "plain", 20)
    account.send(master, "pending level", 3, level=4)
    account.send(master, "pending timer", 3, after_ms=28_000)
    account.send(master, "level", 3, level=1)
    account.send(master, "timer", 3, after_ms=2_000)
    with master.wire() as wire:
        wire.commit(GROUP, TOPIC, 0, 7)
    pair.wait_equal()
    until(lambda: has_tables(slave, 7), "the tables at the slave")

    slave.kill()
    account.send(master, "alone", 1, code=12)
    with master.wire() as wire:
        wire.commit(GROUP, TOPIC, 0, 9)
        wire.call(UPDATE_BROKER_CONFIG, {}, b"brokerRole=ASYNC_MASTER")  # which it asks for at every send
    account.send(master, "alone with an asynchronous one", 3)
    slave.launch_slave(**POPS).wait()
    account.send(master, "asynchronous", 20)
    account.send(master, "asynchronous pending", 3, after_ms=28_000)
    pair.wait_equal()
    with master.wire() as wire:
        wire.call(UPDATE_BROKER_CONFIG, {}, b"brokerRole=SYNC_MASTER")
    account.sent_until_copied(master, "together")
    until(lambda: has_tables(slave, 9), "the offset at the slave")
    consumer, again = Consumer(), Consumer()
    with master.wire() as wire:
        later, never, _ = consume(consumer, wire, "popped")
        again.acknowledged = consumer.acknowledged
        wait_stored(wire)
        open_until_later = [half(wire, b"committed"), half(wire, b"rolled back")]
        for _ in range(3):
            wire.send(ORDERED, 0, b"x")
        wire.commit(GROUP, ORDERED, 0, 0)
        in_order = until(lambda: pop_in_order(wire, "one"), "two messages in order")
        assert acknowledge_in_order(wire, in_order[1]) == 0, "the first is still out"
    until(lambda: f"{ORDERED}@{GROUP}" in master.config(ORDER_INFO).get("table", {}), "what is popped in order, saved")
    until(
        lambda: slave.config("consumerOffset.json")["offsetTable"].get(f"{POPPED}@{POPPERS}") == {"0": 9},
        "how far was popped, at the slave",
    )
    pair.wait_equal()

    master.kill()
    slave.kill()
    shutil.copy(master.data / "config" / ORDER_INFO, slave.data / "config")
    slave.launch_master(**POPS).wait()
    with slave.wire() as wire:
        assert wire.committed(GROUP, TOPIC, 0) == 9
        assert pop_in_order(wire, "two") == [], "another consumer has what comes first"
        assert acknowledge_in_order(wire, in_order[0]) == 2
        for popped in later:
            again.ack(wire, popped)
        for sent, decision in zip(open_until_later, (COMMIT, ROLL_BACK), strict=True):
            decide(wire, sent, decision)
        account.due_ms[b"committed"] = 0
        account.send(slave, "after", 3)
        until(
            lambda: again.pop(wire, 8, 60_000) is not None and never <= again.deliveries.keys(),
            "what was popped and not acknowledged, and only that",
        )
    account.judge(slave)
    assert b"rolled back" not in slave.bodies(TOPIC)


def test_releases_of_4_follow_and_are_followed(tmp_path_factory: pytest.TempPathFactory, available: Available) -> None:
    available(lambda: java_build(OLD_BROKER_VERSION))
    folder = tmp_path_factory.mktemp("pairs4")
    ours = Pair(folder / "ours", Kind.ORBITMQ, Kind.JAVA, OLD_BROKER_VERSION)
    theirs = Pair(folder / "theirs", Kind.JAVA, Kind.ORBITMQ, OLD_BROKER_VERSION)
    try:
        theirs.first.launch_master()
        ours.first.launch_master().wait()
        ours.second.launch_slave(haMasterAddress=f"127.0.0.1:{ours.first.ha_port}")
        theirs.first.wait()
        theirs.second.launch_slave()
        accounts = {}
        for pair in (ours, theirs):
            pair.second.wait()
            prepare(pair.first)
            account = accounts[pair] = Account(pair)
            account.send(pair.first, "plain", 20)
            account.send(pair.first, "pending", 3, level=4)
            account.send(pair.first, "level", 3, level=1)
            with pair.first.wire() as wire:
                wire.commit(GROUP, TOPIC, 0, 7)
        for pair in (ours, theirs):
            until(lambda pair=pair: b"level-2" in pair.first.bodies(TOPIC), "what is due at the master")  # type: ignore[misc]
            pair.wait_equal()
            until(lambda pair=pair: has_tables(pair.second, 7), "the tables at the slave")  # type: ignore[misc]
        for pair in (ours, theirs):
            pair.first.kill()
            pair.second.kill()
            pair.second.launch_master()
        for pair in (ours, theirs):
            pair.second.wait()
            with pair.second.wire() as wire:
                assert wire.committed(GROUP, TOPIC, 0) == 7
        accounts[theirs].judge(theirs.second)
        until(lambda: b"pending-2" in ours.second.bodies(TOPIC), "what was pending, at RocketMQ")
    finally:
        ours.kill()
        theirs.kill()


def test_rocketmq_follows_ours_and_takes_over_and_ours_refuses_it_afterwards(pairs: tuple[Pair, Pair]) -> None:
    pair = pairs[0]
    master, slave, account = pair.first, pair.second, Account(pair)
    account.sent_until_copied(master, "first")
    account.send(master, "plain", 20)
    pair.wait_equal()
    until(lambda: has_tables(slave, 7), "the tables at the slave", 120)

    slave.kill()
    until(lambda: "is let go" in master.log(), "the end of the slave's connection")
    account.send(master, "alone", 3, code=11)
    master.kill()
    master.launch_master(**POPS).wait()  # an asynchronous one, until it is lost
    account.send(master, "alone with an asynchronous one", 3)
    slave.launch_slave(**POPS).wait()
    account.send(master, "asynchronous", 20)
    pair.wait_equal()
    account.send(master, "level", 3, level=1)
    account.send(master, "timer", 3, after_ms=2_000)
    account.send(master, "pending level", 3, level=3)
    account.send(master, "pending timer", 3, after_ms=10_000)
    until(lambda: b"timer-2" in master.bodies(TOPIC), "what is due at the master")
    with master.wire() as wire:
        later, never, _ = consume(Consumer(), wire, "popped")
        open_until_later = [half(wire, b"committed"), half(wire, b"rolled back")]
    pair.wait_equal()

    master.kill()
    was_late = time.time() * 1000 > account.due_ms[b"pending timer-0"]
    slave.kill()
    slave.launch_master(**POPS).wait()
    consumer = Consumer()  # RocketMQ was not told how far was popped, and begins anew
    unread = never | {popped.body for popped in later}
    with slave.wire() as wire:
        assert wire.committed(GROUP, TOPIC, 0) == 7
        for sent, decision in zip(open_until_later, (COMMIT, ROLL_BACK), strict=True):
            decide(wire, sent, decision)
        account.due_ms[b"committed"] = 0
        account.send(slave, "after", 3)
        until(
            lambda: consumer.pop(wire, 8, 60_000) is not None and unread <= consumer.deliveries.keys(),
            "what was popped and not acknowledged",
        )
    # what was delivered, or came to its timers, since it was last told, a minute or some seconds ago
    account.judge(slave, may_repeat=("level", "timer", "pending" if was_late else "pending timer"))
    assert b"rolled back" not in slave.bodies(TOPIC)

    assert send(slave, TOPIC, b"x" * 100_000, {"UNIQ_KEY": "longer"}) == 0, "more than the other one stores meanwhile"
    slave.kill()
    master.launch_master(**TWO_COPIES, **POPS).wait()
    slave.launch_slave(**POPS).wait()
    until(lambda: "slave is beyond our end" in master.log(), "the refusal of a slave whose log is longer")
    refused = next(line for line in master.log().splitlines() if "slave is beyond our end" in line)
    assert "(" in refused, "what to do stands behind it"
    assert send(master, TOPIC, b"x" * 200_000, {"UNIQ_KEY": "large"}) == 11
    until(lambda: "slave ends inside a record" in master.log(), "the refusal of a slave that ends in a record of ours")
