"""FAR_LOAD, as a job asks it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.far_loads import HOST, write_file
from tests.worlds.little_far import DAY_MS, LittleFar

from orbitmq.access.gate import CALLER
from orbitmq.access.users import User
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.timers.far_loads import FarLoads, LoadPlace
from orbitmq.limits import far as limits
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.far_load_bodies import (
    FarLoadAction,
    FarLoadRequest,
    FarLoadState,
    FarLoadVerdict,
    LoadFile,
)
from orbitmq.protocol.remoting.frame import Command
from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.loads import stem_of


class Rig:
    """A store with a far tier, and its requests."""

    def __init__(self, root: Path, *, has_tier: bool = True) -> None:
        self.root = root
        self.has_tier = has_tier
        self.open()

    def open(self, **changes: Any) -> None:
        tier = ArrowTier(str(self.root / "far")) if self.has_tier else None
        self.far = LittleFar(self.root / "store", tier, **changes)
        self.requests = FarLoads(
            self.far.far,
            LoadPlace(HOST.store_host, HOST.own, HOST.precision_ms),
            self.far.store,
            self.far.clock,
            unwritable=lambda: Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full"),
        )
        self.sent: list[Command] = []
        self.address = ("10.0.0.9", 40001)
        self.attachments: dict[str, object] = {CALLER: User("spark", "secret")}

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def call(self, action: FarLoadAction, *, settle: bool = True, **fields: Any) -> Command:
        request = FarLoadRequest(action, **{"job": "job", **fields})
        command = Command(RequestCode.FAR_LOAD, opaque=1, body=request.encode())
        answer = self.requests.answer(command, self)  # type: ignore[arg-type]
        if settle:
            self.far.work()
        return answer or self.sent.pop()

    def ask(self, action: FarLoadAction, **fields: Any) -> FarLoadState:
        answer = self.call(action, **fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return FarLoadState.decode(answer.body)

    def write(self, opened: FarLoadState, count: int, **given: Any) -> LoadFile:
        rows = [(opened.split_ms + (number + 1) * DAY_MS, f"U{number}") for number in range(count)]
        return LoadFile(*write_file(self.root / "far", rows, attempt=opened.attempt, **given))

    def load(self, opened: FarLoadState, *files: LoadFile) -> FarLoadState:
        return self.ask(
            FarLoadAction.LOAD,
            attempt=opened.attempt,
            created_ms=opened.created_ms,
            split_ms=opened.split_ms,
            files=list(files),
        )


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(**given: Any) -> Rig:
        made.append(Rig(tmp_path, **given))
        return made[-1]

    yield make
    for rig in made:
        rig.far.close()


def test_a_job_from_its_first_request_to_its_last(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    assert rig.ask(FarLoadAction.FIND).verdict is FarLoadVerdict.UNKNOWN
    opened = rig.ask(FarLoadAction.OPEN)
    assert opened.verdict is FarLoadVerdict.OPEN
    assert (rig.root / "far" / opened.probe).read_text() == opened.probe_text
    assert opened.split_ms - opened.created_ms > 3 * DAY_MS
    files = [rig.write(opened, 2), rig.write(opened, 3, part=1)]
    assert files[0].name.startswith(opened.stem + "-")
    checking = rig.load(opened, *files)
    assert (checking.verdict, checking.files) == (FarLoadVerdict.CHECKING, 2)
    for action in FarLoadAction:
        loaded = rig.ask(action, attempt="0000000000000000")
        assert loaded.verdict is FarLoadVerdict.LOADED
        assert (loaded.attempt, loaded.split_ms, loaded.files, loaded.rows) == (opened.attempt, opened.split_ms, 2, 5)
    assert rig.far.far.counts().pending == 5


def test_files_of_a_job_are_one_line_of_the_audit_log(
    make_rig: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    rig = make_rig()
    with caplog.at_level(logging.INFO, "orbitmq.audit"):
        rig.ask(FarLoadAction.FIND)
        opened = rig.ask(FarLoadAction.OPEN)
        files = [rig.write(opened, 2), rig.write(opened, 3, part=1)]
        for settle in (False, False, True):  # the second one is asked while the first file is being checked
            rig.call(
                FarLoadAction.LOAD, settle=settle, attempt=opened.attempt, created_ms=opened.created_ms,
                split_ms=opened.split_ms, files=files,
            )  # fmt: skip
        rig.load(opened, *files)
        rig.ask(FarLoadAction.FIND)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "orbitmq.audit"]
    assert line == f"user 'spark' at 10.0.0.9:40001: FAR_LOAD job=job attempt={opened.attempt} files=2 rows=5"


def test_loaded_is_said_when_it_is_durable(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    opened = rig.ask(FarLoadAction.OPEN)
    rig.load(opened, rig.write(opened, 1))
    request = FarLoadRequest(FarLoadAction.FIND, "job")
    answer = rig.requests.answer(Command(RequestCode.FAR_LOAD, opaque=1, body=request.encode()), rig)  # type: ignore[arg-type]
    assert (answer, rig.sent) == (None, []), "nothing was synced yet"
    rig.far.work()
    assert FarLoadState.decode(rig.sent[0].body).verdict is FarLoadVerdict.LOADED
    assert (rig.root / "store" / "orbitmq.far").exists()


def test_a_late_copy_of_a_request_changes_nothing(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    first, second = rig.ask(FarLoadAction.OPEN), rig.ask(FarLoadAction.OPEN)
    assert first.attempt != second.attempt
    files = {opened.attempt: rig.write(opened, 2) for opened in (first, second)}
    rig.load(second, files[second.attempt])
    for opened in (first, second, first):
        loaded = rig.load(opened, files[opened.attempt])
        assert (loaded.verdict, loaded.attempt) == (FarLoadVerdict.LOADED, second.attempt)
    rig.far.kill()
    rig.open(clock=rig.far.clock)
    assert rig.load(first, files[first.attempt]).attempt == second.attempt
    assert rig.far.far.counts().pending == 2


def test_refused_files_say_why(make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    opened = rig.ask(FarLoadAction.OPEN)
    file = rig.write(opened, 2)
    (rig.root / "far" / file.name).write_bytes(b"something else")
    assert rig.load(opened, file).verdict is FarLoadVerdict.CHECKING
    refused = rig.load(opened, file)
    assert refused.verdict is FarLoadVerdict.REFUSED
    assert file.name in refused.reason
    good = rig.write(opened, 2)
    foreign = LoadFile("loads/other.parquet", 1, 1, 1)
    assert "is no file of attempt" in rig.load(opened, foreign).reason
    opened.created_ms -= limits.FAR_LOAD_AGE_MS + 1
    assert "start the job again" in rig.load(opened, good).reason
    opened.created_ms += limits.FAR_LOAD_AGE_MS + 1
    monkeypatch.setattr("orbitmq.broker.timers.far_loads.FAR_LOAD_FILES_MAX", 1)
    assert "at most 1 files" in rig.load(opened, good, rig.write(opened, 1, part=2)).reason
    assert rig.far.far.held.jobs == {}
    rig.load(opened, good)
    assert rig.load(opened, good).verdict is FarLoadVerdict.LOADED


def test_a_broker_without_a_tier_remembers_that_all_rows_are_sent(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(has_tier=False)
    opened = rig.ask(FarLoadAction.OPEN)
    assert opened.verdict is FarLoadVerdict.NO_TIER
    assert "orbitmq[lake]" in opened.reason
    rig.load(opened)
    loaded = rig.load(opened)
    assert (loaded.verdict, loaded.files, loaded.split_ms) == (FarLoadVerdict.LOADED, 0, opened.split_ms)
    file = LoadFile(f"loads/{stem_of('other', opened.attempt)}-0.parquet", 1, 1, 1)
    refused = rig.ask(
        FarLoadAction.LOAD, job="other", attempt=opened.attempt, created_ms=opened.created_ms, files=[file]
    )
    assert "no far tier any more" in refused.reason


def test_nonsense_and_what_cannot_be_done_now(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig()
    with pytest.raises(Refusal, match="1 to 255 characters"):
        rig.call(FarLoadAction.FIND, job="")
    with pytest.raises(Refusal, match="JSON"):
        rig.requests.answer(Command(RequestCode.FAR_LOAD, body=b"{"), rig)  # type: ignore[arg-type]
    rig.far.store.refuse("test", "the disk is full")
    assert rig.ask(FarLoadAction.FIND).verdict is FarLoadVerdict.UNKNOWN
    with pytest.raises(Refusal, match="the disk is full"):
        rig.call(FarLoadAction.OPEN)
    rig.far.store.allow("test")
    (rig.root / "far").write_text("no directory")
    answer = rig.call(FarLoadAction.OPEN)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "far tier does not work" in answer.remark
