"""Half messages with a time to wait for: placed by their commit, found, recalled and delivered like any timer message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.conftest import NOW_MS, SMALL_STORE
from tests.unit.broker.transactions.conftest import COMMIT, TransactionRig
from tests.worlds.little_store import LITTLE_WHEEL

from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.names import FAR_TIMER_TOPIC, TIMER_TOPIC
from orbitmq.protocol.recall_handles import encode_handle
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.timer_bodies import FarTierAction, FarTierRequest, FarTierState
from orbitmq.protocol.sysflag import TransactionType, transaction_type
from orbitmq.store.files import OsFiles
from orbitmq.store.worker import InlineWorker
from orbitmq.timing.appending import NOT_ATTACHED
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.far.far_timers import FarTimers
from orbitmq.timing.far.process import Helper, Helpers
from orbitmq.timing.rocketmq.exchange import TimerExchange
from orbitmq.timing.timers.timers import Timers, TimerSettings

OK = (ResponseCode.SUCCESS, None)


class TimedRig(TransactionRig):
    """With timer messages as well."""

    def more_parts(self) -> dict[str, Any]:
        return super().more_parts() | {"timers": self.timers}

    def more_derived(self) -> list[Any]:
        files = OsFiles()
        exchange = TimerExchange(files, self.root, 1_000, **LITTLE_WHEEL)
        self.timers = Timers(files, self.root, self.clock, TimerSettings(), exchange)
        return [*super().more_derived(), self.timers]


@pytest.fixture
def tx(tmp_path: Path) -> Iterator[TimedRig]:
    rig = TimedRig(tmp_path / "store", BrokerSettings(), SMALL_STORE)
    yield rig
    rig.close()


def test_a_relative_time_counts_from_the_commit_and_an_absolute_one_stays(tx: TimedRig) -> None:
    relative = tx.half(body=b"relative", TIMER_DELAY_MS="60000")
    absolute = tx.half(body=b"absolute", TIMER_DELIVER_MS=str(NOW_MS + 60_000))
    tx.advance(4_000)
    committed_ms = tx.clock.now_ms()
    assert tx.ended(relative, COMMIT) == tx.ended(absolute, COMMIT) == OK
    assert [transaction_type(record.sys_flag) for record in tx.records(TIMER_TOPIC)] == [TransactionType.COMMIT] * 2
    tx.advance(100_000)
    messages = tx.records("orders")
    assert [bytes(message.body) for message in messages] == [b"absolute", b"relative"]
    assert [message.store_timestamp for message in messages] == [NOW_MS + 60_000, committed_ms + 60_001]
    assert [transaction_type(message.sys_flag) for message in messages] == [TransactionType.NOT] * 2
    assert tx.timers.pending_count == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_committed_timer_message_is_delivered_once_whatever_is_killed(tx: TimedRig, when: str) -> None:
    sent = tx.half(TIMER_DELAY_MS="5000")
    assert tx.ended(sent, COMMIT) == OK
    if when == "before":
        tx.kill()
    tx.advance(5_100)
    assert tx.bodies() == [b"half"]
    tx.kill()
    tx.advance(20_000)
    assert tx.bodies() == [b"half"]
    assert (tx.timers.pending_count, tx.undecided) == (0, 0)


@pytest.mark.parametrize("killed", [False, True])
def test_a_committed_timer_message_is_recalled(tx: TimedRig, killed: bool) -> None:
    sent = tx.half(TIMER_DELIVER_MS=str(NOW_MS + 60_000), UNIQ_KEY="U1")
    assert tx.ended(sent, COMMIT) == OK
    if killed:
        tx.kill()
    handle = encode_handle("orders", tx.settings.broker_name, slot_time(NOW_MS + 60_000, 1_000), "U1")
    fields = {"producerGroup": "pg", "topic": "orders", "recallHandle": handle}
    for _ in range(2):
        answer = tx.call(RequestCode.RECALL_MESSAGE, fields)
        assert (answer.code, answer.fields.get("msgId")) == (0, "U1")
    tx.advance(100_000)
    assert tx.bodies() == []
    assert tx.ended(sent, COMMIT) == OK
    assert tx.bodies() == []


def test_a_time_that_cannot_be_is_refused_with_the_half_message(tx: TimedRig) -> None:
    answer = tx.send("orders", b"x", {"TRAN_MSG": "true", "PGROUP": "pg", "TIMER_DELAY_MS": "never"})
    assert answer is not None
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert tx.undecided == 0


# --- due later than timer messages wait -----------------------------------------------------------------------------------


class FarRig(TimedRig):
    """With a far tier that takes what is due in more than five seconds."""

    def more_parts(self) -> dict[str, Any]:
        return super().more_parts() | {"far": self.far}

    def more_derived(self) -> list[Any]:
        from orbitmq.timing.far.arrow_tier import ArrowTier

        helper = Helper(self.clock, ArrowTier(str(self.root / "far")), InlineWorker())
        self.far = FarTimers(OsFiles(), self.root, self.clock, Helpers(helper), horizon_ms=5_000)
        return [*super().more_derived(), self.far]


@pytest.fixture
def far(tmp_path: Path) -> Iterator[FarRig]:
    pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")
    rig = FarRig(tmp_path / "store", BrokerSettings(), SMALL_STORE)
    yield rig
    rig.close()


def test_a_copy_does_nothing_to_the_files_and_says_who_does(far: FarRig) -> None:
    far.store.only_copy(NOT_ATTACHED)
    for action in FarTierAction:
        answer = far.call(RequestCode.FAR_TIER, body=FarTierRequest(action).encode())
        refused = (ResponseCode.SERVICE_NOT_AVAILABLE, NOT_ATTACHED)
        assert (answer.code, answer.remark) == (
            (ResponseCode.SUCCESS, None) if action is FarTierAction.STATUS else refused
        )


def committed_far(far: FarRig) -> Command:
    """A half message that was committed ten seconds before its time and lies in a file, and nowhere else."""
    sent = far.half(TIMER_DELIVER_MS=str(NOW_MS + 10_000), UNIQ_KEY="U1")
    assert far.ended(sent, COMMIT) == OK
    assert (far.undecided, len(far.records(FAR_TIMER_TOPIC)), far.records(TIMER_TOPIC)) == (0, 1, [])
    far.call(RequestCode.FAR_TIER, body=FarTierRequest(FarTierAction.COMPACT).encode())
    far.advance(2_000)
    state = FarTierState.decode(far.call(RequestCode.FAR_TIER, body=FarTierRequest().encode()).body)
    assert (state.pending, state.file_rows, state.in_log) == (1, 1, 0)
    return sent


def test_a_message_committed_for_the_far_tier_is_delivered_once_and_in_time(far: FarRig) -> None:
    sent = committed_far(far)
    far.kill()
    far.advance(9_000)
    assert [record.store_timestamp for record in far.records("orders")] == [NOW_MS + 10_000]
    assert far.ended(sent, COMMIT) == OK, "a repeated decision stores nothing"
    far.kill()
    far.advance(5_000)
    assert far.bodies() == [b"half"]


@pytest.mark.parametrize("killed", [False, True])
def test_a_message_committed_for_the_far_tier_is_recalled(far: FarRig, killed: bool) -> None:
    committed_far(far)
    if killed:
        far.kill()
    handle = encode_handle("orders", far.settings.broker_name, slot_time(NOW_MS + 10_000, 1_000), "U1")
    answer = far.call(RequestCode.RECALL_MESSAGE, {"producerGroup": "pg", "topic": "orders", "recallHandle": handle})
    assert (answer.code, answer.remark, answer.fields.get("msgId")) == (0, None, "U1")
    far.advance(12_000)
    assert far.bodies() == []
