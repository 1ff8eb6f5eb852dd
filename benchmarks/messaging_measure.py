"""Workloads of transactions, POP and filters: how each row of their comparison is measured on one running broker.

Rules of this file
1. CPU per message is that of all server processes, as in `measure.py`. Clients are Python and slower than any server here: rates are
   not compared.
2. Each workload runs once before it is measured, so that Java has compiled it.
3. A workload whose broker refuses, loses or repeats something is no measurement: `Invalid` is raised.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import rigpath  # noqa: F401

# isort: split
from rig.brokers import BrokerUnderTest, JvmProfile, Kind
from rig.process import anonymous_kb
from rig.wire import (
    CREATE_TOPIC,
    PULL,
    PULL_NOT_FOUND,
    PULL_OFFSET_MOVED,
    PULL_RETRY_IMMEDIATELY,
    SEND_V2,
    SUCCESS,
    encode_properties,
    pull_fields,
    records,
    send_fields,
    topic_fields,
)

import probe
from conversations import Answer, Asked, Conversation, converse
from lateness import quantiles
from measure import QUEUES, Bench, Invalid, Numbers, Scale

HEARTBEAT, END_TRANSACTION, CHECK_TRANSACTION = 34, 37, 39
POP, ACK = 200_050, 200_051
POLLING_FULL, POLLING_TIMEOUT = 209, 210
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
FILTERED: Final = 4 | 8
"""System flag of a pull: its subscription is in it, and is an expression."""
WAITING: Final = 2

PATIENT: Final = {"waitTimeMillsInSendQueue": "5000"}
"""No send is refused for its age: a busy machine makes figures worse, not invalid."""
GROUP: Final = "bench"
BODY: Final = bytes(1024)
POP_COUNT: Final = 32
CHECK_AFTER_MS: Final = 6_000
"""RocketMQ's transactionTimeOut."""
INVISIBLE_MS: Final = 5_000
LONG_MS: Final = 300_000
STALLED_S: Final = 30.0
EXPRESSION: Final = "region = 'eu' AND price > 8 AND name IS NOT NULL"
WAITERS, EXPRESSIONS = 1_000, 100
ARRIVALS_PER_S: Final = 100


class Amounts(NamedTuple):
    """How much work a run does, in messages; half of what is popped is whole batches of 32."""

    transactions: int
    pops: int
    reappearing: int
    checks: int
    filtered: int
    arrivals: int
    in_flight: int


FULL_AMOUNTS: Final = Amounts(20_000, 102_400, 1_000, 500, 100_000, 500, 1_000_000)
QUICK_AMOUNTS: Final = Amounts(4_000, 20_480, 300, 100, 20_000, 200, 100_000)


class MessagingBench(Bench):
    """Measures the rows of one kind of broker."""

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        scale: Scale,
        amounts: Amounts,
        say: Callable[[str], None],
        *,
        layered: bool = False,
    ) -> None:
        """`layered`: orbitmq without its compiled leaf."""
        super().__init__(kind, folder / ("layered" if layered else "whole"), scale, say)
        self._amounts = amounts
        self._environment = {"ORBITMQ_LEAF": "off"} if layered else {}
        self._groups = (f"{GROUP}-{number}" for number in itertools.count())

    def run(self, keys: set[str]) -> None:
        loads = {
            "transaction": self._transactions, "pop": self._pops, "filter": self._filtered, "arrival": self._arrivals,
            "check-late": self._checks, "reappear-late": self._reappearing,
        }  # fmt: skip
        if keys & loads.keys():
            broker = self._server()
            self._warm(broker)
            for key, load in loads.items():
                if key in keys:
                    self._repeated(key, load, broker)
            broker.stop()
        if "pop-merge" in keys:
            broker = self._server({"enablePopBufferMerge": "true"})
            self._warm(broker)
            self._repeated("pop", self._pops_merged, broker)
            broker.stop()
        if keys & {"in-flight", "in-flight-restart"}:
            self._in_flight()

    def _made(self, settings: dict[str, str]) -> BrokerUnderTest:
        broker = BrokerUnderTest(
            self.kind, self.folder / f"{self.kind.value}-{len(self._made_servers)}", settings=PATIENT | settings,
            profile=JvmProfile.MEASURE, environment=self._environment,
        )  # fmt: skip
        self._made_servers.append(broker)
        return broker

    # -- transactions

    def _transactions(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        """16 producers with one transaction each at a time; half, commit, and a pull of what was committed."""
        for key, count in (("", self._amounts.transactions // 2), ("transaction", self._amounts.transactions)):
            topic = self._topic(broker)
            cpu = self._cpu(broker)
            converse(broker.broker_port, [transacting(topic, number, count // 16) for number in range(16)])
            asked = self._cpu(broker)
            pulled = self._load(
                broker, "--mode", "pull", "--count", count // 16 * 16, "--conns", 4, "--no-create", topic=topic
            )
            if pulled["received"] != count // 16 * 16:
                raise Invalid(f"{pulled['received']:.0f} of {count} committed messages are there")
            if key:
                yield key, {"value": (self._cpu(broker) - cpu) / count, "decided_us": (asked - cpu) / count}

    def _checks(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        """Undecided halves, a hundred a second: how late each producer is asked the first time."""
        topic, count = self._topic(broker), self._amounts.checks
        group, due, late = next(self._groups), {}, {}
        with broker.wire(timeout_s=CHECK_AFTER_MS / 1000 + 120) as wire:
            beat = {"clientID": group, "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
            wire.call(HEARTBEAT, {}, json.dumps(beat).encode())
            for number in range(count):
                due[f"{group}-{number}"] = time.time() * 1000 + CHECK_AFTER_MS
                half = half_message(topic, f"{group}-{number}", group)
                wire.call(half.code, {name: str(value) for name, value in half.fields.items()}, half.body)
                time.sleep(0.01)
            while len(late) < count:
                head, body = wire.next_request()
                if head["code"] == CHECK_TRANSACTION:
                    now_ms = time.time() * 1000
                    [record] = records(body)
                    key = record.properties["UNIQ_KEY"]
                    late.setdefault(key, now_ms - due[key])
                    wire.tell(END_TRANSACTION, ending(topic, group, head["extFields"], ROLLBACK))
        yield "check-late", late_figures(list(late.values()))

    # -- POP

    def _pops(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        for key, count in (("", self._amounts.pops // 2), ("pop", self._amounts.pops)):
            topic, group = next(self._topics), next(self._groups)
            self._load(broker, "--mode", "batch", "--count", count, "--conns", 4, "--window", 4, topic=topic)
            popped = [0]
            cpu = self._cpu(broker)
            converse(broker.broker_port, [popping(topic, group, count, popped) for _ in range(4)])
            if key:
                yield key, {"value": (self._cpu(broker) - cpu) / count}

    def _pops_merged(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        for _, numbers in self._pops(broker):
            yield "pop-merge", numbers

    def _reappearing(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        """Messages popped one by one and left alone: how late each is popped again by consumers that wait."""
        topic, group, count = self._topic(broker), next(self._groups), self._amounts.reappearing
        with broker.wire() as wire:
            for number in range(count):
                wire.send(topic, number % QUEUES, b"%d" % number)
        due: dict[bytes, int] = {}
        late: dict[bytes, float] = {}
        converse(broker.broker_port, [leaving(topic, group, count, due)])
        converse(broker.broker_port, [waiting(topic, group, due, late) for _ in range(4)])
        yield "reappear-late", late_figures([late[body] for body in due])

    def _in_flight(self) -> None:
        """Pop very many and acknowledge none; then kill -9, and a start."""
        broker, topic, group, count = self._server(), next(self._topics), next(self._groups), self._amounts.in_flight
        self._load(broker, "--mode", "batch", "--count", count, "--size", 128, "--conns", 4, "--window", 4, topic=topic)
        before = anonymous_kb(broker.pids()[-1]) / 1024
        popped = [0]
        cpu = self._cpu(broker)
        converse(broker.broker_port, [popping(topic, group, count, popped, settles=False) for _ in range(4)])
        cpu_us = (self._cpu(broker) - cpu) / count
        anonymous = anonymous_kb(broker.pids()[-1]) / 1024
        self._note("in-flight", {"value": anonymous, "before_mb": before, "pop_us": cpu_us})
        broker.kill()
        begin = time.time() * 1000
        broker.launch()
        self._note("in-flight-restart", {"value": probe.first_send(broker.broker_port, begin).send_ok_ms / 1000})
        broker.kill()

    # -- filters

    def _filtered(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        """Pull a topic to its end with an expression of three terms that one message in ten meets."""
        topic, count = self._topic(broker), self._amounts.filtered
        with broker.wire() as wire:
            for first in range(0, count, 32):
                batch = [(BODY, properties_of(number)) for number in range(first, min(first + 32, count))]
                wire.send_batch(topic, first // 32 % QUEUES, batch)
            ends = {queue_id: wire.max_offset(topic, queue_id) for queue_id in range(QUEUES)}
        for key in ("", "filter"):
            matched = [0]
            cpu = self._cpu(broker)
            converse(broker.broker_port, [filtering(topic, queue_id, end, matched) for queue_id, end in ends.items()])
            if matched[0] != len(range(9, count, 10)):
                raise Invalid(f"{matched[0]} of {count} messages met the expression")
            if key:
                yield key, {"value": (self._cpu(broker) - cpu) / count}

    def _arrivals(self, broker: BrokerUnderTest) -> Iterator[tuple[str, Numbers]]:
        """What an arrival costs more where consumers wait whose expressions it does not meet."""
        topic, count = self._topic(broker, queues=1), self._amounts.arrivals
        alone = self._arriving(broker, topic, count)
        with broker.wire() as wire:
            for number in range(WAITERS):
                expression = f"price > {1_000 + number % EXPRESSIONS} AND region = 'eu' AND name IS NOT NULL"
                fields = filter_fields(topic, 0, wire.max_offset(topic, 0), expression, f"{GROUP}-{topic}-{number}")
                fields |= {"sysFlag": str(FILTERED | WAITING), "suspendTimeoutMillis": str(LONG_MS)}
                wire.tell(PULL, fields)
            wire.max_offset(topic, 0)
            self._arriving(broker, topic, count // 2)
            beside = self._arriving(broker, topic, count)
        yield "arrival", {"value": beside - alone, "alone_us": alone}

    def _arriving(self, broker: BrokerUnderTest, topic: str, count: int) -> float:
        """CPU per message of a slow stream of messages, in us."""
        cpu = self._cpu(broker)
        with broker.wire() as wire:
            for number in range(count):
                wire.send(topic, 0, BODY, properties_of(number))
                time.sleep(1 / ARRIVALS_PER_S)
        return (self._cpu(broker) - cpu) / count

    def _topic(self, broker: BrokerUnderTest, queues: int = QUEUES) -> str:
        topic = next(self._topics)
        with broker.wire() as wire:
            wire.call(CREATE_TOPIC, topic_fields(topic, queues))
        return topic


# --- what clients say -------------------------------------------------------------------------------------------------


def transacting(topic: str, number: int, count: int) -> Conversation:
    """One transaction after the other, all committed."""
    for each in range(count):
        [half] = yield [half_message(topic, f"{number:016X}{each:016X}", GROUP, each % QUEUES)]
        place = {**half.fields, "commitLogOffset": int(half.fields["msgId"][16:], 16)}
        yield [Asked(END_TRANSACTION, ending(topic, GROUP, place, COMMIT))]


def half_message(topic: str, key: str, group: str, queue_id: int = 0) -> Asked:
    properties = encode_properties({"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": group, "WAIT": "true"})
    born_at = int(time.time() * 1000)
    fields = send_fields(topic, queue_id, born_at, properties, group=group, sys_flag=PREPARED)
    return Asked(SEND_V2, fields, BODY)


def ending(topic: str, group: str, place: dict[str, object] | dict[str, str], decision: int) -> dict[str, str]:
    """`place`: fields of the answer to a half message, or of a broker's question."""
    fields = {
        "topic": topic,
        "producerGroup": group,
        "tranStateTableOffset": place.get("tranStateTableOffset") or place.get("queueOffset"),
        "commitLogOffset": place["commitLogOffset"],
        "commitOrRollback": decision,
        "fromTransactionCheck": "tranStateTableOffset" in place,
        "msgId": place.get("transactionId", ""),
        "transactionId": place.get("transactionId", ""),
    }
    return {
        name: str(value).lower() if value is True or value is False else str(value) for name, value in fields.items()
    }


def pop_request(topic: str, group: str, count: int, invisible_ms: int, poll_ms: int = 0) -> Asked:
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": -1,
        "maxMsgNums": count,
        "invisibleTime": invisible_ms,
        "pollTime": poll_ms,
        "bornTime": int(time.time() * 1000),
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    return Asked(POP, fields, fine=(SUCCESS, PULL_NOT_FOUND, POLLING_TIMEOUT, POLLING_FULL))


def popping(topic: str, group: str, count: int, popped: list[int], *, settles: bool = True) -> Conversation:
    """Pop until all members together have `count` messages, and acknowledge each."""
    moved = time.monotonic()
    while popped[0] < count:
        [answer] = yield [pop_request(topic, group, POP_COUNT, LONG_MS)]
        acks = list(acknowledgements(answer, topic, group))
        popped[0] += len(acks)
        if acks:
            moved = time.monotonic()
        elif time.monotonic() - moved > STALLED_S:
            raise Invalid(f"only {popped[0]} of {count} messages were popped")
        if acks and settles:
            yield acks


def acknowledgements(answer: Answer, topic: str, group: str) -> Iterator[Asked]:
    """A request for each message of an answer. The receipt is that of RocketMQ's clients."""
    fields = answer.fields
    if answer.code != SUCCESS:
        return
    starts = dict(entry.rsplit(" ", 1) for entry in fields["startOffsetInfo"].split(";"))
    for entry in fields["msgOffsetInfo"].split(";"):
        source, queue_id, listed = entry.split(" ")
        start = starts[f"{source} {queue_id}"]
        for offset in listed.split(","):
            receipt = f"{start} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} {source} broker-a {queue_id} {offset}"
            asked = {
                "consumerGroup": group,
                "topic": topic,
                "queueId": queue_id,
                "extraInfo": receipt,
                "offset": offset,
            }
            yield Asked(ACK, asked)


def leaving(topic: str, group: str, count: int, due: dict[bytes, int]) -> Conversation:
    """Pop messages one at a time and do nothing more about them; `due` gets when each is to come again."""
    while len(due) < count:
        [answer] = yield [pop_request(topic, group, 1, INVISIBLE_MS)]
        for record in records(answer.body):
            due[record.body] = int(answer.fields["popTime"]) + int(answer.fields["invisibleTime"])
        if time.time() * 1000 > min(due.values(), default=1 << 62) - 100:
            raise Invalid("the first message would reappear before the last was popped")


def waiting(topic: str, group: str, due: dict[bytes, int], late: dict[bytes, float]) -> Conversation:
    """Pop with long polling until every message came once more."""
    ends = time.monotonic() + 90
    while len(late) < len(due):
        if time.monotonic() > ends:
            raise Invalid(f"{len(due) - len(late)} of {len(due)} messages did not come again")
        [answer] = yield [pop_request(topic, group, POP_COUNT, LONG_MS, poll_ms=1_000)]
        now_ms = time.time() * 1000
        for record in records(answer.body) if answer.code == SUCCESS else ():
            late.setdefault(record.body, now_ms - due[record.body])


def properties_of(number: int) -> dict[str, str]:
    """As many as messages usually have; every tenth has the price 9."""
    return {
        "UNIQ_KEY": f"{number:032X}", "KEYS": f"order-{number}", "TAGS": "paid", "WAIT": "true", "region": "eu",
        "price": str(number % 10), "name": f"customer {number}",
    }  # fmt: skip


def filter_fields(topic: str, queue_id: int, offset: int, expression: str, group: str) -> dict[str, str]:
    fields = pull_fields(topic, queue_id, offset, group, suspend_ms=0)
    return fields | {"sysFlag": str(FILTERED), "subscription": expression, "expressionType": "SQL92"}


def filtering(topic: str, queue_id: int, end: int, matched: list[int]) -> Conversation:
    offset = 0
    fine = (SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED)
    while offset < end:
        [answer] = yield [Asked(PULL, filter_fields(topic, queue_id, offset, EXPRESSION, GROUP), fine=fine)]
        offset = int(answer.fields["nextBeginOffset"])
        matched[0] += sum(1 for _ in records(answer.body)) if answer.code == SUCCESS else 0


def late_figures(late: list[float]) -> Numbers:
    found = quantiles(late)
    assert found is not None
    return {
        "value": found["p99"],
        "p50_ms": found["p50"],
        "p99_ms": found["p99"],
        "max_ms": found["max"],
        "early": float(sum(each < 0 for each in late)),
    }
