"""Pops as a consumer sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import SMALL_STORE, Rig
from tests.worlds.little_store import LITTLE_WHEEL

from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import Record, iter_records
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.store.files import OsFiles
from orbitmq.store.settings import StoreSettings
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.timers import Timers, TimerSettings


class PopRig(Rig):
    """With timers, whose records say what is in flight."""

    def more_parts(self) -> dict[str, Any]:
        return {"timers": self.timers}

    def more_derived(self) -> list[Any]:
        files = OsFiles()
        exchange = TimerExchange(files, self.root, 1_000, **LITTLE_WHEEL)
        self.timers = Timers(files, self.root, self.clock, TimerSettings(), exchange)
        return [self.timers]

    def kill(self) -> None:
        """End as a killed process does, and begin again."""
        self.store.abandon()
        self.open()

    def advance(self, ms: int) -> None:
        """As in any rig, with the periodic work of the store, which delivers the records."""
        end = self.clock.monotonic_ns() + ms * 1_000_000
        while True:
            dues = [self.broker.next_tick_ns, self.store.deadlines.next_ns]
            due = min((at for at in dues if at is not None), default=None)
            if due is None or due > end:
                break
            self.clock.advance(max(0, -(-(due - self.clock.monotonic_ns()) // 1_000_000)))
            self.store.run_due(self.clock.monotonic_ns())
            self.broker.tick()
            self.broker.end_turn()
        self.clock.advance(max(0, (end - self.clock.monotonic_ns()) // 1_000_000))


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., PopRig]]:
    made: list[PopRig] = []

    def make(*, store: StoreSettings = SMALL_STORE, **settings: Any) -> PopRig:
        rig = PopRig(tmp_path / f"store{len(made)}", BrokerSettings(**settings), store)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.close()


class Popper:
    """A consumer of group `g` at the broker of a rig."""

    def __init__(self, rig: Any) -> None:
        self.rig = rig
        rig.chosen_queue = 50
        self.peer = rig.peer()

    def ask(self, topic: str = "T", *, group: str = "g", **more: Any) -> Command | None:
        """A pop of everything; None while it waits."""
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": 0,
            "maxMsgNums": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
            "expType": "TAG",
            "exp": "*",
            "order": False,
        }
        return self.rig.try_call(RequestCode.POP_MESSAGE, fields | more, peer=self.peer)

    def pop(self, topic: str = "T", **more: Any) -> list[tuple[Record, str, str]]:
        """Messages with the topic and the receipt that an acknowledgement names."""
        answer = self.ask(topic, **more)
        assert answer is not None
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT, answer.remark
            return []
        return self.read(answer, topic, more.get("group", "g"))

    def read(self, answer: Command, topic: str = "T", group: str = "g") -> list[tuple[Record, str, str]]:
        fields = answer.fields
        starts = {entry.rsplit(" ", 1)[0]: entry.split(" ")[2] for entry in fields["startOffsetInfo"].split(";")}
        offsets = {}
        for entry in fields["msgOffsetInfo"].split(";"):
            source, queue_id, listed = entry.split(" ")
            assert f"{source} {queue_id}" in starts
            offsets[source, queue_id] = [int(offset) for offset in listed.split(",")]
        found = []
        for record in iter_records(bytes(answer.body)):
            receipt = decode_properties(record.properties).get("POP_CK")
            if receipt is None:
                start = starts[f"0 {record.queue_id}"]
                receipt = (
                    f"{start} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 broker-a "
                    f"{record.queue_id} {record.queue_offset}"
                )
            source = receipt.split(" ")[4]
            offsets[source, str(record.queue_id)].remove(record.queue_offset)
            stored_in = {"0": topic, "1": f"%RETRY%{group}_{topic}", "2": f"%RETRY%{group}+{topic}"}[source]
            found.append((record, stored_in, receipt))
        assert not any(offsets.values()), "both fields name every message, and no other"
        return found

    def bodies(self, **more: Any) -> list[bytes]:
        return [record.body for record, _, _ in self.pop(**more)]

    def about(self, code: int, popped: tuple[Record, str, str], *, group: str = "g", **more: Any) -> Command:
        record, topic, receipt = popped
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": record.queue_id,
            "extraInfo": receipt,
            "offset": record.queue_offset,
        }
        return self.rig.call(code, fields | more, peer=self.peer)

    def ack(self, popped: tuple[Record, str, str], **more: Any) -> int:
        return self.about(RequestCode.ACK_MESSAGE, popped, **more).code

    def change(self, popped: tuple[Record, str, str], invisible_ms: int, **more: Any) -> Command:
        return self.about(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, popped, invisibleTime=invisible_ms, **more)

    @staticmethod
    def renewed(popped: tuple[Record, str, str], fields: Mapping[str, str]) -> tuple[Record, str, str]:
        """What is popped, with the receipt that a change of its invisible time was answered, as the Java client makes it."""
        record, topic, receipt = popped
        words = receipt.split(" ")
        words[0] = str(record.queue_offset)
        words[1:4] = fields["popTime"], fields["invisibleTime"], fields["reviveQid"]
        return record, topic, " ".join(words)

    def committed(self, topic: str = "T", queue_id: int = 0, group: str = "g") -> int | None:
        return self.rig.broker.offsets.query(group, topic, queue_id)

    def answers(self) -> list[Command]:
        """What pops that waited were answered."""
        return self.peer.take()


@pytest.fixture
def popper(rig: Any) -> Popper:
    return Popper(rig)


@pytest.fixture
def make_popper() -> type[Popper]:
    return Popper
