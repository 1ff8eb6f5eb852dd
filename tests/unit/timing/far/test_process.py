"""The process that keeps the files: what it does, and what becomes of calls when it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.far_loads import ATTEMPT, write_file
from tests.worlds.little_far import DAY_MS, HOUR_MS, LittleFar

from orbitmq.clock import ManualClock
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.loads import Load
from orbitmq.timing.far.process import MODULE, ProcessTier
from orbitmq.timing.far.tier import (
    Compaction,
    FarFileDamagedError,
    FarQuery,
    FarUnreachableError,
    FileView,
    Found,
    HelperEndedError,
    Opened,
    Rows,
)

OpenFar = Callable[..., LittleFar]


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[ProcessTier]:
    made = ProcessTier(str(tmp_path / "far"))
    yield made
    made.stop()


def test_every_call_goes_there_and_back(tier: ProcessTier, open_far: OpenFar) -> None:
    far = open_far(tier=tier)
    due_ms = far.clock.now_ms() + 4 * DAY_MS
    for number in range(4):
        far.send(due_ms + number * HOUR_MS, b"%d" % number, UNIQ_KEY=f"U{number}", KEYS="all")
    assert far.find(message_id="U2", bodies=True)[0].record.body == b"2"
    far.advance(11 * 60_000)
    assert list(far.far.held.files.by_name)
    assert far.find(message_id="U2", bodies=True)[0].record.body == b"2"
    far.recall(far.find(message_id="U2")[0])
    assert far.far.keeper is not None
    far.far.keeper.request_compaction()
    far.advance(60_000)
    assert far.far.held.tombstones == {}
    far.advance(5 * DAY_MS)
    assert [body for _, body in far.wheel()] == [b"0", b"1", b"3"]
    assert tier.start_count >= 1
    far.close()
    assert tier.pid is None


def test_files_of_a_job_are_checked_there(tier: ProcessTier, open_far: OpenFar, tmp_path: Path) -> None:
    far = open_far(tier=tier)
    tier.probe("loads/probe", "text")
    assert (tmp_path / "far" / "loads" / "probe").read_text() == "text"
    written = write_file(tmp_path / "far", [(far.clock.now_ms() + 10 * DAY_MS, "U")])
    far.far.load(Load("job", ATTEMPT, far.clock.now_ms(), 0, [written]))
    far.work()
    assert far.find(message_id="U", bodies=True)[0].record.body == b"U"
    far.close()


def test_it_starts_when_needed_and_ends_when_idle(tier: ProcessTier, open_far: OpenFar) -> None:
    far = open_far(tier=tier)
    assert tier.pid is None
    far.send(far.clock.now_ms() + 10 * DAY_MS)
    far.work()
    assert tier.pid is None, "what lies in the log needs no files yet"
    far.advance(11 * 60_000)
    assert tier.pid is not None
    for _ in range(10):
        far.advance(60_000)
    assert tier.pid is None
    far.close()


def test_failures_have_their_kinds(tier: ProcessTier, tmp_path: Path) -> None:
    tier.open()
    with pytest.raises(FarFileDamagedError, match="gone") as caught:
        tier.rows(FileView("landing/none.parquet", 0), 1, 1, 1)
    assert caught.value.name == "landing/none.parquet"
    (tmp_path / "far" / "landing" / "bad.parquet").write_bytes(b"PAR1 no parquet file PAR1")
    with pytest.raises(FarFileDamagedError, match=r"bad\.parquet"):
        tier.rows(FileView("landing/bad.parquet", 0), 1, 1, 1)
    with pytest.raises(FarUnreachableError):
        ProcessTier("nosuch://place").open()


def test_more_files_than_it_may_open_are_read(tmp_path: Path) -> None:
    limited = ["/bin/sh", "-c", 'ulimit -n 48; exec "$@"', "sh", sys.executable, "-m", MODULE]
    tier = ProcessTier(str(tmp_path), command=limited)
    written = [write_file(tmp_path, [(DAY_MS, f"U{part}")], part=part) for part in range(60)]
    assert len(tier.find([FileView(file.name, 0) for file in written], FarQuery(limit=60)).sizes) == 60
    tier.publish(b"{}")
    tier.stop()


def test_no_question_fails_for_a_process_that_ended_before(tier: ProcessTier) -> None:
    tier.open()
    assert tier.pid is not None
    os.kill(tier.pid, signal.SIGKILL)
    os.waitid(os.P_PID, tier.pid, os.WEXITED | os.WNOWAIT)
    assert tier.open().serial is None
    assert tier.start_count == 2


def test_a_process_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.timing.far.process.FAR_CALL_TIMEOUT_MS", 50)
    silent = ProcessTier(str(tmp_path), command=[sys.executable, "-c", "input()"])
    with pytest.raises(HelperEndedError, match="no answer within 50 ms"):
        silent.open()
    assert silent.pid is None


@pytest.mark.parametrize("said", [b"", b"\xff\xff\xff\xff", b"\0\0\0\x02no"])
def test_a_process_that_says_nonsense_is_ended(tmp_path: Path, said: bytes) -> None:
    script = f"import sys; sys.stdout.buffer.write({said!r}); sys.stdout.buffer.flush(); sys.stdin.buffer.read(1)"
    babbler = ProcessTier(str(tmp_path), command=[sys.executable, "-c", script])
    with pytest.raises(HelperEndedError):
        babbler.open()


class MortalTier:
    """A tier whose process dies in its n-th call: before the work is done, or after it with the answer lost."""

    def __init__(self, tier: ProcessTier, at: int, *, works: bool) -> None:
        self._tier = tier
        self._at = at
        self._works = works
        self.calls = 0

    def _die(self) -> None:
        self._tier.stop()
        raise HelperEndedError("the process for the far tier did not answer: it ended")

    def _call(self, work: Callable[[], object]) -> object:
        self.calls += 1
        if self.calls != self._at:
            return work()
        if self._works:
            work()
        self._die()
        return None

    def __getattr__(self, name: str) -> object:
        method = getattr(self._tier, name)
        if name in ("stop", "pid"):
            return method
        return lambda *arguments: self._call(lambda: method(*arguments))


@pytest.mark.parametrize("works", [False, True], ids=["before", "after"])
def test_its_end_at_any_step_loses_and_repeats_nothing(
    open_far: OpenFar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    monkeypatch.setattr("orbitmq.timing.far.plan.FAR_LANDING_FILES_MAX", 2)
    from orbitmq.timing.far.arrow_tier import ArrowTier

    at, clock = 1, ManualClock()
    while True:
        mortal = MortalTier(ArrowTier(str(tmp_path / f"far-{at}")), at, works=works)  # type: ignore[arg-type]
        far = LittleFar(tmp_path / f"store-{at}", mortal, clock=clock)  # type: ignore[arg-type]
        due_ms = clock.now_ms() + 10 * DAY_MS
        for number in range(4):
            far.send(due_ms + number * HOUR_MS, b"%d" % number, UNIQ_KEY=f"U{number}")
            if number % 2:
                far.advance(11 * 60_000)
        found = far.find_again("U1")
        assert found is not None
        far.recall(found)
        far.advance(12 * DAY_MS)
        assert [body for _, body in far.wheel()] == [b"0", b"2", b"3"], f"the process ended in call {at}"
        assert far.far.held.pending_count == 0
        far.close()
        if mortal.calls < at:
            break
        at += 1
    assert at > 6


def test_its_answers_are_those_of_the_tier_itself(tier: ProcessTier) -> None:
    kinds = (Opened, FarFile, Rows, Found, Compaction)
    assert isinstance(tier.open(), kinds)
    assert tier.find([FileView("landing/none.parquet", 0)], FarQuery()).damaged
