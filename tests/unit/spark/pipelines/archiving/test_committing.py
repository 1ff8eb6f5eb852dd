"""A batch is stored exactly once, whoever commits in between and wherever its run dies.

The table is a list of versions in memory. Storage that fails is scripted by what happens at each put.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from orbitmq.errors import StoreDamagedError, StoreError, StoreLockedError
from orbitmq.limits.spark import ARCHIVE_STORAGE_TRIES
from orbitmq.spark.pipelines.archiving.committing import ArchiveBatch, LandedFile, Snapshot, commit, stored

COLUMNS = {"topic": "string"}


class Died(Exception):
    """The driver ended here."""


class FakeTable:
    """Versions as (token, files, numbers). `faults`: by the number of the call of a step, what happens instead or beside it."""

    def __init__(self) -> None:
        self.versions: list[tuple[str, list[str], dict[str, int]]] = [("", [], {})]
        self.there: dict[str, int] = {}
        self.columns = dict(COLUMNS)
        self.kept: set[int] = {0}
        self.steps: list[str] = []
        self.before: dict[str, list[Callable[[], None]]] = {}
        self.after: dict[str, list[Callable[[], None]]] = {}

    def _step(self, name: str, work: Callable[[], Any]) -> Any:
        self.steps.append(name)
        for hooks in (self.before, self.after):
            if hooks is self.after:
                result = work()
            if hooks.get(name):
                hooks[name].pop(0)()
        return result

    def open(self) -> Snapshot:
        return self._step("open", self._snapshot)  # type: ignore[no-any-return]

    def _snapshot(self) -> Snapshot:
        numbers: dict[str, int] = {}
        for _, _, moved in self.versions:
            numbers.update(moved)
        return Snapshot(version=len(self.versions) - 1, applications=numbers, columns=dict(self.columns))

    def prove(self, files: Sequence[LandedFile]) -> LandedFile | None:
        return self._step(  # type: ignore[no-any-return]
            "prove", lambda: next((file for file in files if self.there.get(file.path) != file.size_bytes), None)
        )

    def put(self, snapshot: Snapshot, batch: ArchiveBatch) -> None:
        self._step("put", lambda: self._put(snapshot.version + 1, batch))

    def _put(self, version: int, batch: ArchiveBatch) -> None:
        if version != len(self.versions):
            raise StoreError("the version is there")
        self.versions.append((batch.token, [file.path for file in batch.files], dict(batch.ends)))

    def token_of(self, version: int) -> str | None:
        return self._step(  # type: ignore[no-any-return]
            "token", lambda: self.versions[version][0] if version < len(self.versions) else None
        )

    def keep(self, version: int) -> None:
        self._step("keep", lambda: self.kept.add(version))

    @property
    def files(self) -> list[str]:
        return [path for _, files, _ in self.versions for path in files]


TOKENS = itertools.count()


def batch_of(table: FakeTable, snapshot: Snapshot, end: int, name: str = "q", **more: Any) -> ArchiveBatch:
    """The rows of a queue from where it stands, in a file that lies there."""
    begin = snapshot.applications.get(name)
    token = f"t{next(TOKENS)}"
    path = f"{token}/{begin or 0}-{end}"
    table.there[path] = 10
    given: dict[str, Any] = {
        "token": token, "files": [LandedFile(path=path, rows=1, size_bytes=10, stats="{}")], "begins": {name: begin},
        "ends": {name: end}, "columns": COLUMNS, **more,
    }  # fmt: skip
    return ArchiveBatch(**given)


def failing(text: str = "no answer") -> Callable[[], None]:
    def fail() -> None:
        raise StoreError(text)

    return fail


def rows_of(table: FakeTable) -> list[int]:
    """Every row that the table has, of one queue."""
    rows: list[int] = []
    for path in table.files:
        begin, end = path.split("/")[1].split("-")
        rows += range(int(begin), int(end))
    return rows


def test_one_batch_after_the_other() -> None:
    table = FakeTable()
    for end in (10, 20, 30):
        snapshot = table.open()
        assert commit(table, snapshot, batch_of(table, snapshot, end)) == snapshot.version + 1
    assert rows_of(table) == list(range(30))
    assert table.kept == {0, 1, 2, 3}


def test_of_two_runs_from_the_same_snapshot_one_is_stored_and_the_other_is_told() -> None:
    table = FakeTable()
    one, other = table.open(), table.open()
    first, second = batch_of(table, one, 10), batch_of(table, other, 15)
    commit(table, one, first)
    with pytest.raises(StoreLockedError, match="q was at None when this batch was planned, and is at 10 now"):
        commit(table, other, second)
    assert rows_of(table) == list(range(10))


def test_a_snapshot_that_was_opened_again_does_not_make_an_old_plan_good() -> None:
    """The zombie: a driver that slept through another run's commits, and even looks again."""
    table = FakeTable()
    planned = batch_of(table, table.open(), 10)
    snapshot = table.open()
    commit(table, snapshot, batch_of(table, snapshot, 10))
    with pytest.raises(StoreLockedError):
        commit(table, table.open(), planned)
    assert rows_of(table) == list(range(10))


def test_the_same_batch_is_not_stored_again_by_its_own_run() -> None:
    table = FakeTable()
    snapshot = table.open()
    batch = batch_of(table, snapshot, 10)
    commit(table, snapshot, batch)
    assert commit(table, snapshot, batch) == 1, "its version names it"
    with pytest.raises(StoreLockedError):
        commit(table, table.open(), batch)
    assert rows_of(table) == list(range(10))


def test_who_compacts_or_archives_other_queues_in_between_is_no_hindrance() -> None:
    table = FakeTable()
    snapshot = table.open()
    batch = batch_of(table, snapshot, 10)
    table.versions.append(("", [], {}))  # compacted
    table.versions.append(("x", [], {"another": 7}))
    assert commit(table, snapshot, batch) == 3
    assert rows_of(table) == list(range(10))


def test_without_end_others_commit_in_between() -> None:
    table = FakeTable()
    table.before["put"] = [lambda: table.versions.append(("", [], {}))] * 100
    with pytest.raises(StoreError, match="could not be stored: the version is there"):
        commit(table, table.open(), batch_of(table, table.open(), 10))
    assert rows_of(table) == []


def test_a_storage_that_refuses_is_not_asked_for_long() -> None:
    table = FakeTable()
    snapshot = table.open()
    table.before["put"] = [failing("no right to write")] * 100
    with pytest.raises(StoreError, match="no right to write") as caught:
        commit(table, snapshot, batch_of(table, snapshot, 10))
    assert table.steps.count("put") == ARCHIVE_STORAGE_TRIES
    assert "the next run takes it again" in str(caught.value.remedy)


@pytest.mark.parametrize("failures", range(1, ARCHIVE_STORAGE_TRIES))
def test_an_answer_that_got_lost_stores_nothing_twice(failures: int) -> None:
    for hooks in ("before", "after"):  # the put was not done, or was
        table = FakeTable()
        snapshot = table.open()
        getattr(table, hooks)["put"] = [failing()] * failures
        assert commit(table, snapshot, batch_of(table, snapshot, 10)) == 1
        assert rows_of(table) == list(range(10))
        assert 1 in table.kept


def test_a_put_that_arrives_late_is_recognised() -> None:
    """The storage does it after it was asked whether it had."""
    table = FakeTable()
    snapshot = table.open()
    batch = batch_of(table, snapshot, 10)
    table.before["put"] = [failing()]
    table.after["token"] = [lambda: table._put(1, batch)]
    assert commit(table, snapshot, batch) == 1
    assert rows_of(table) == list(range(10))


STEPS = ["prove", "put", "token", "keep"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("fault", [Died, StoreError])
def test_whatever_step_a_run_ends_at_the_next_one_takes_the_rest(
    step: str, moment: str, fault: type[Exception]
) -> None:
    table = FakeTable()
    snapshot = table.open()
    commit(table, snapshot, batch_of(table, snapshot, 10))

    def end() -> None:
        raise fault("here")

    snapshot = table.open()
    if step == "token":  # which is asked for where a put has failed
        table.after["put"] = [failing()]
    getattr(table, moment)[step] = [end] * (1 if fault is Died else 100)
    with suppress(Died, StoreError):
        commit(table, snapshot, batch_of(table, snapshot, 20))
    table.before.clear()
    table.after.clear()
    snapshot = table.open()
    commit(table, snapshot, batch_of(table, snapshot, 25))
    assert rows_of(table) == list(range(25))


def test_what_was_put_is_read_by_who_opens_the_table_behind_it_and_not_twice() -> None:
    table = FakeTable()
    snapshot = table.open()
    batch = batch_of(table, snapshot, 10)
    assert commit(table, snapshot, batch) == 1
    assert "token" not in table.steps
    snapshot = table.open()
    snapshot = stored(table, snapshot, batch_of(table, snapshot, 20))
    assert snapshot.applications == {"q": 20}
    assert table.steps[-2:] == ["open", "token"]
    table.before["open"] = [lambda: table.versions.__setitem__(3, ("another", [], {}))]
    with pytest.raises(StoreDamagedError, match="version 3 of the archive was stored, and is another one now"):
        stored(table, snapshot, batch_of(table, snapshot, 30))
    snapshot = table.open()
    table.before["open"] = [lambda: table.versions.pop()]
    with pytest.raises(StoreDamagedError, match="version 4 of the archive was stored, and is not there now"):
        stored(table, snapshot, batch_of(table, snapshot, 30))


def test_a_file_that_is_gone_or_another_is_not_committed() -> None:
    for size in (None, 9):
        table = FakeTable()
        snapshot = table.open()
        batch = batch_of(table, snapshot, 10)
        if size is None:
            table.there.clear()
        else:
            table.there[batch.files[0].path] = size
        with pytest.raises(StoreDamagedError, match="is gone, or not the 10 bytes"):
            commit(table, snapshot, batch)
        assert table.files == []


def test_a_column_that_the_table_has_not_is_not_committed() -> None:
    for columns in ({"topic": "string", "stray": "long"}, {"topic": "long"}):
        table = FakeTable()
        snapshot = table.open()
        with pytest.raises(StoreDamagedError, match="somebody changed the table"):
            commit(table, snapshot, batch_of(table, snapshot, 10, columns=columns))
        assert table.files == []


def planted(name: str, real: str, fault: str) -> Callable[..., Any]:
    """A function of the module with another text in one place."""
    import inspect

    from orbitmq.spark.pipelines.archiving import committing

    text = inspect.getsource(getattr(committing, name))
    assert real in text
    space = dict(vars(committing))
    exec(text.replace(real, fault), space)
    if name != "commit":
        exec(inspect.getsource(committing.commit), space)
    found: Callable[..., Any] = space["commit"]
    return found


@pytest.mark.parametrize(
    ("name", "real", "fault", "judge"),
    [
        (
            "commit", "check_place(snapshot, batch)", "pass",
            test_a_snapshot_that_was_opened_again_does_not_make_an_old_plan_good,
        ),
        ("commit", "if lost is not None:", "if False:", test_a_file_that_is_gone_or_another_is_not_committed),
        ("check_place", "!= kind:", "is not None and False:", test_a_column_that_the_table_has_not_is_not_committed),
    ],
    ids=["committed on a reopened snapshot", "missing file committed", "stray column committed"],
)  # fmt: skip
def test_planted_faults_are_caught_by_these_tests(
    name: str, real: str, fault: str, judge: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "commit", planted(name, real, fault))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        judge()
