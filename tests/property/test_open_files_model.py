"""The bounded set of open files beside a model: a list of what was used, newest last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.store.files import Buffer, File, OsFiles
from orbitmq.store.open_files import BoundedFiles

FILES = 6
KEPT = 0
"""The file that is opened with `keep_unsynced`."""

steps = st.lists(
    st.tuples(st.sampled_from(["read", "write", "sync", "view", "close", "open"]), st.integers(0, FILES - 1)),
    max_size=60,
)


class Counted:
    """A file that notes while it is open."""

    def __init__(self, path: Path, noted: list[int]) -> None:
        self.path = path
        self._noted = noted
        noted.append(int(path.name))

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        noted, self._noted = self._noted, []
        if noted:
            noted.remove(int(self.path.name))

    def pread(self, size: int, offset: int) -> bytes:
        return b""

    def pwrite(self, data: Buffer, offset: int) -> None: ...

    def datasync(self) -> None: ...

    def map_read(self) -> bytes:
        return self.path.name.encode()


class CountingFiles(OsFiles):
    __slots__ = ("noted",)

    def __init__(self) -> None:
        self.noted: list[int] = []

    def open(
        self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
    ) -> File:
        return Counted(Path(path), self.noted)  # type: ignore[return-value]


def run(open_max: int, mapped_max: int, work: list[tuple[str, int]]) -> None:
    counting = CountingFiles()
    files = BoundedFiles(counting, open_max, mapped_max)
    handles: dict[int, File] = {}
    used: list[int] = []  # open ones by use, least recently used first
    mapped: list[int] = []
    unsynced: set[int] = set()

    def touch(number: int) -> None:
        if number not in used:
            while (
                len(used) >= open_max
                and (gone := next((one for one in used if one != KEPT or one not in unsynced), None)) is not None
            ):
                used.remove(gone)
        else:
            used.remove(number)
        used.append(number)

    for kind, number in work:
        if kind == "open" or number not in handles:
            if number in handles:
                continue
            handles[number] = files.open(Path(str(number)), keep_unsynced=number == KEPT)
            touch(number)
        elif kind == "close":
            handles.pop(number).close()
            unsynced.discard(number)
            used[:] = [one for one in used if one != number]
            mapped[:] = [one for one in mapped if one != number]
        elif kind == "view":
            assert bytes(handles[number].view()) == str(number).encode()
            if number in mapped:
                mapped.remove(number)
            else:
                if number not in used:
                    touch(number)
                del mapped[: max(len(mapped) - mapped_max + 1, 0)]
            mapped.append(number)
        elif kind == "sync":
            touch(number)
            handles[number].datasync()
            unsynced.discard(number)
            del used[: max(len(used) - open_max, 0)]
        elif kind == "write":
            unsynced.add(number)
            touch(number)
            handles[number].pwrite(b"", 0)
        else:
            touch(number)
            handles[number].pread(1, 0)
        assert sorted(counting.noted) == sorted(used)
        assert len(files._open) == len(used) <= open_max + (KEPT in unsynced)
        assert len(files._mapped) == len(mapped) <= mapped_max
        assert [int(file.path.name) for file in files._mapped] == mapped


@given(st.integers(1, 4), st.integers(1, 4), steps)
@settings(max_examples=200, deadline=None)
def test_the_set_is_that_of_the_model(open_max: int, mapped_max: int, work: list[tuple[str, int]]) -> None:
    run(open_max, mapped_max, work)


def test_a_file_that_was_kept_is_given_back_when_it_is_synced() -> None:
    run(1, 1, [("read", KEPT), ("write", KEPT), ("read", KEPT + 1), ("sync", KEPT)])


def nothing_given_back() -> mock._patch[mock.Mock]:
    return mock.patch.object(BoundedFiles, "_give_back", return_value=None)


def use_not_noted() -> mock._patch[mock.Mock]:
    return mock.patch.object(BoundedFiles, "used", return_value=None)


@pytest.mark.parametrize("bug", [nothing_given_back, use_not_noted])
def test_the_model_sees_a_set_without_a_bound(bug: Callable[[], mock._patch[mock.Mock]]) -> None:
    work = [("open", number) for number in range(3)] + [("read", 0), ("open", 3), ("read", 1), ("read", 2), ("read", 0)]
    run(3, 1, work)
    with bug(), pytest.raises(AssertionError):
        run(3, 1, work)
