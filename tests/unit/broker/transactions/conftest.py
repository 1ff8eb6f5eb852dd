"""A broker with delay levels and transactions, and a producer that is asked about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import SMALL_STORE, ListPeer, Rig

from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.transactions.check_times import CheckRules
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.protocol.names import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import Record, decode_record
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.schedule import DelayLevels
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles
from orbitmq.store.opening import level_due_time
from orbitmq.store.settings import StoreSettings
from orbitmq.timing.levels.offsets import LevelOffsets
from orbitmq.timing.levels.release import LevelRelease

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "pg"


class TransactionRig(Rig):
    rules = CheckRules()

    def more_parts(self) -> dict[str, Any]:
        return {"levels": self.levels, "transactions": self.transactions}

    def more_derived(self) -> list[Any]:
        config = self.root / "config"
        due_time = level_due_time(DelayLevels.parse())
        self.levels = LevelRelease(
            self.clock, due_time, LevelOffsets(ConfigFile(OsFiles(), config / "delayOffset.json"), self.clock)
        )
        offsets = ConfigFile(OsFiles(), config / "consumerOffset.json")
        self.transactions = Transactions(offsets, due_time, self.rules)
        return [self.levels, self.transactions]

    def kill(self) -> None:
        """End as a killed process does, and begin again."""
        self.store.abandon()
        self.open()

    def advance(self, ms: int) -> None:
        """As in any rig, with the periodic work of the store, which delivers delayed messages."""
        end = self.clock.monotonic_ns() + ms * 1_000_000
        while True:
            known = [due for due in (self.broker.next_tick_ns, self.store.deadlines.next_ns) if due is not None]
            if not known or min(known) > end:
                break
            self.clock.advance(max(0, -(-(min(known) - self.clock.monotonic_ns()) // 1_000_000)))
            self.store.run_due(self.clock.monotonic_ns())
            self.broker.tick()
            self.broker.end_turn()
        self.clock.advance((end - self.clock.monotonic_ns()) // 1_000_000)

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """Everything of one queue that is in the log."""
        found = self.store.scan(self.store.log.start)
        places = [one.physical_offset for one in found if (one.topic, one.queue_id) == (topic, queue_id)]
        return [decode_record(data) for place in places if (data := self.store.log.record(place)) is not None]

    # --- transactions -------------------------------------------------------------------------------------------------

    @property
    def undecided(self) -> int:
        return len(self.transactions.undecided)

    def half(self, topic: str = "orders", body: bytes = b"half", **properties: str) -> Command:
        """The answer to a half message."""
        said = {"TRAN_MSG": "true", "PGROUP": GROUP} | properties
        return self.sent_ok(topic, body, said, sysFlag=4)

    def end(self, sent: Command, state: int, *, peer: ListPeer | None = None, **changes: Any) -> Command | None:
        """The answer to a decision about the half message of an answer, or of a question."""
        fields = sent.fields
        position = fields.get("commitLogOffset") or int(fields["msgId"][16:], 16)
        asked = {
            "topic": "orders",
            "producerGroup": GROUP,
            "tranStateTableOffset": fields.get("tranStateTableOffset") or fields["queueOffset"],
            "commitLogOffset": position,
            "commitOrRollback": state,
            "fromTransactionCheck": "commitLogOffset" in fields,
            "msgId": fields["transactionId"],
            "transactionId": fields["transactionId"],
        }
        return self.try_call(RequestCode.END_TRANSACTION, asked | changes, peer=peer)

    def ended(self, sent: Command, state: int, **changes: Any) -> tuple[int, str | None]:
        """Code and remark of the answer to a decision."""
        answer = self.end(sent, state, **changes)
        assert answer is not None
        return answer.code, answer.remark

    def producer(self) -> ListPeer:
        """A live producer of the group."""
        peer = self.peer()
        self.heartbeat(peer, f"client-{peer.address[1]}", producer=GROUP)
        peer.take()
        return peer

    def questions(self, peer: ListPeer) -> list[Command]:
        return [command for command in peer.take() if command.code == RequestCode.CHECK_TRANSACTION_STATE]

    def bodies(self, topic: str = "orders") -> list[bytes]:
        return [bytes(record.body) for record in self.records(topic)]

    def halves(self) -> list[Record]:
        return self.records(HALF_TOPIC)

    def ops(self) -> list[tuple[bytes, str | None]]:
        """Body and ending of each op record."""
        return [
            (bytes(record.body), decode_properties(record.properties).get(Property.ENDED))
            for record in self.records(OP_HALF_TOPIC)
        ]


MakeTransactions = Callable[..., TransactionRig]


@pytest.fixture
def make_transactions(tmp_path: Path) -> Iterator[MakeTransactions]:
    made: list[TransactionRig] = []

    def make(rules: CheckRules | None = None, store: StoreSettings = SMALL_STORE, **settings: Any) -> TransactionRig:
        class Ruled(TransactionRig):
            pass

        Ruled.rules = rules or CheckRules()
        rig = Ruled(tmp_path / f"store{len(made)}", BrokerSettings(**settings), store)
        made.append(rig)
        return rig

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def tx(make_transactions: MakeTransactions) -> TransactionRig:
    """A broker with RocketMQ's times for checks."""
    return make_transactions()
