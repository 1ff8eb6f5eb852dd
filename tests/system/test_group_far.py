"""A replicated group in processes with one far tier: what one member took in another one delivers, each message once."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from group_processes import Group, answer_of
from server_process import until
from test_pair_far import SHIFTED, TOPIC, delivered, far, landed, next_year_ms, recall, send
from tests.worlds.etcd_process import MISSING, etcd_program

from orbitmq import TimerVerdict
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.timer_bodies import FarTierAction, FarTierRequest

NAMES = ("a", "b", "c")
COUNT = 300
RECALLED_BEFORE, RECALLED_AFTER = range(100, 110), range(200, 210)


def test_a_frozen_leader_that_wakes_harms_nothing_and_each_far_message_comes_once(
    tmp_path: Path, figure: Callable[[str], None]
) -> None:
    if etcd_program() is None:
        pytest.skip(MISSING)
    group = Group(tmp_path, *NAMES, timerFarUrl=str(tmp_path / "shared"))
    try:
        names = f"127.0.0.1:{group.names.name_port}"
        first = group.leader()
        zombie = group.members[first]
        zombie.create_topic(TOPIC, 2)
        first_ms = next_year_ms()
        due_ms = [first_ms + number * 10 for number in range(COUNT)]
        handles = asyncio.run(send(names, due_ms))
        landed(zombie)
        assert set(asyncio.run(recall(names, [handles[one] for one in RECALLED_BEFORE]))) == {TimerVerdict.RECALLED}
        group.until_level(*NAMES)
        asyncio.run(send(names, [first_ms + 9_000] * 20))
        far(zombie, FarTierAction.COMPACT)
        time.sleep(0.05)  # somewhere in landing, writing anew, removing
        zombie.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        second = group.until_leader(but=first)
        took_s = time.monotonic() - began
        new = group.members[second]
        until(lambda: far(new).pending == COUNT + 20 - len(RECALLED_BEFORE), what="a leader that knows what waits")
        landed(new)
        zombie.send_signal(signal.SIGCONT)
        group.until_level(*NAMES)
        assert group.leader() == second
        compact = FarTierRequest(action=FarTierAction.COMPACT).encode()
        assert answer_of(zombie, RequestCode.FAR_TIER, compact).code != ResponseCode.SUCCESS, (
            "it lists, and changes nothing"
        )
        wanted = [handles[one] for one in (*RECALLED_BEFORE, *RECALLED_AFTER)]
        verdicts = asyncio.run(recall(names, wanted))
        assert set(verdicts[: len(RECALLED_BEFORE)]) == {TimerVerdict.ALREADY_RECALLED}, "what the former leader did"
        assert set(verdicts[len(RECALLED_BEFORE) :]) == {TimerVerdict.RECALLED}
        group.until_level(*NAMES)
        pending = COUNT + 20 - len(wanted)
        for name in NAMES:
            state = far(group.members[name])
            assert (state.pending, state.damaged, state.trouble) == (pending, {}, None), name
        figure(f"frozen leader of a group with a far tier: the next one leads after {took_s:.2f} s")

        for name in NAMES:
            group.kill(name)
        shift_ms = first_ms - int(time.time() * 1_000) - 25_000
        group.program, group.environment = ("-c", SHIFTED), {"SHIFT_MS": str(shift_ms)}
        for name in NAMES:
            group.start(name, awaited=False)
        for name in NAMES:
            group.members[name].await_line()
        new = group.members[group.until_leader()]
        until(lambda: far(new).pending == 0, 120, what="everything promoted")
        until(lambda: len(delivered(new)) >= pending, 60, what="everything delivered")
        found = delivered(new)
        gone = {*RECALLED_BEFORE, *RECALLED_AFTER}
        expected = Counter(b"%d" % number for number in range(COUNT) if number not in gone)
        expected.update(b"%d" % number for number in range(20))
        assert Counter(bytes(record.body) for record in found) == expected, "each once"
        for record in found:
            number = int(bytes(record.body))
            assert record.store_timestamp >= (first_ms + number * 10 if number >= 20 else first_ms), "early"
    finally:
        group.end()
