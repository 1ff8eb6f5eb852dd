"""The directory of an archive: one run at a time, and a batch that is committed as a whole.

    topic=orders/day=2026-11-22/queue-broker-a-0-00000000000000000000.parquet
    _quarantine/queue-orders-broker-a-0-00000000000000000000.jsonl
    _archive/state.json          how far it is, and the files of the last batch
    _archive/staged/<run>/       files of a batch that is not committed

What is staged does not end in `.parquet`: not every reader passes over directories that begin with `_`.

Rules of this file
1. The state is replaced first, then its files get their names, then the state says that they have them. What is committed and not
   named yet is named by the next run.
2. A file is there when it has its size, staged before the commit, and under its name after it. Where one was lost in between, as by
   another run on storage without locks, the commit fails, and the next run takes the batch back and archives its range again.
3. A run commits only while the state says that it is the run; on a local disk a lock keeps a second one out altogether.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Final

import pyarrow.fs as fs

from orbitmq.errors import StoreDamagedError, StoreError, StoreLockedError
from orbitmq.spark.log_files.places import FilePlace, place_at
from orbitmq.spark.pipelines.archiving.state import (
    EMPTY,
    ArchiveState,
    LandedFile,
    SourceKind,
    check_same,
    decode,
    encode,
)
from orbitmq.spark.pipelines.durable import (
    is_local,
    make_directory,
    replace_content,
    sync,
    write_failures,
)
from orbitmq.spark.reading.offsets import Offsets

log = logging.getLogger("orbitmq.spark")

OWN: Final = "_archive"
STAGED: Final = f"{OWN}/staged"
QUARANTINE: Final = "_quarantine"
STATE: Final = f"{OWN}/state.json"
LOCK: Final = f"{OWN}/lock"


class ArchiveDirectory:
    """An archive that this run owns. Made by `opened`."""

    def __init__(self, place: FilePlace, state: ArchiveState) -> None:
        self._place = place
        self.state = state

    @property
    def staged(self) -> str:
        """Where the tasks of this run write, below the archive's directory."""
        return f"{STAGED}/{self.state.owner}"

    def commit(
        self,
        files: Sequence[LandedFile],
        queues: Offsets,
        positions: Mapping[str, int],
        since: Mapping[str, int] = EMPTY,
    ) -> None:
        """One more batch is in the archive on return, whatever happens next.

        Raises StoreLockedError when another run took over, StoreDamagedError when a file of the batch is not what was written; then the
        archive can be run again, and nothing is missing from it.
        """
        state = self.state.after(files, queues, positions, since)
        self._check_owned()
        for file in files:
            if not _is_there(self._place.under(file.staged), file):
                raise StoreDamagedError(
                    f"{self._place.under(file.staged).path} is gone, or not the {file.size_bytes} bytes that a task of this run wrote: "
                    "nothing of the batch was committed",
                    remedy="the workers may write to another place under the same name: give a directory or URL that all machines "
                    "share; else look for who removes files there, and run the archive again",
                )
        replace_content(self._place.under(STATE), encode(state))
        lost = give_names(self._place, files)
        if lost:
            raise StoreDamagedError(
                f"{self._place.under(lost[0].path).path} and {len(lost) - 1} others of the batch were lost while they got their names",
                remedy="look for who removes files there, and let one run at a time write an archive; run it again: it takes the batch "
                "back and archives its messages once more",
            )
        self._check_owned()
        self.state = state.named()
        replace_content(self._place.under(STATE), encode(self.state))

    def _check_owned(self) -> None:
        said = _stored(self._place)
        if said is None or said.owner != self.state.owner:
            raise StoreLockedError(
                f"another run archives into {self._place.path}", remedy="let one run at a time write an archive"
            )


@contextmanager
def opened(text: str, source: SourceKind, fixed: Mapping[str, str], *, owner: str) -> Iterator[ArchiveDirectory]:
    """The archive at a path or URL, made if there is none; what an earlier run committed is finished, what it did not is removed.

    Raises StoreLockedError while another run of this machine has it, ConfigurationError when it is of another kind.
    """
    place = place_at(text)
    make_directory(place.under(OWN))
    with _locked(place) if is_local(place) else nullcontext():
        state = _stored(place)
        if state is None or not state.batch:  # nothing is in it that another choice would not go with
            state = ArchiveState(source=source, owner=owner, fixed=dict(fixed))
        check_same(state, source, fixed, place.path)
        if state.files and (lost := give_names(place, state.files)):
            state = _taken_back(place, state, lost)
        _remove(place.under(STAGED))
        state = state.named().owned_by(owner)
        replace_content(place.under(STATE), encode(state))
        directory = ArchiveDirectory(place, state)
        yield directory
        _remove(place.under(directory.staged))  # no more: where nothing locks, another run may have begun


def give_names(place: FilePlace, files: Sequence[LandedFile]) -> list[LandedFile]:
    """The final names for the files of a batch that is committed; again is as good as once. Those that are lost: neither staged nor
    under their names are they as they were written."""
    directories, lost = set(), []
    for file in files:
        staged, final = place.under(file.staged), place.under(file.path)
        if _is_there(staged, file):
            make_directory(final.above)
            try:
                with write_failures(final.path):
                    place.file_system.move(staged.path, final.path)
            except StoreError:
                if not _is_there(final, file):  # else somebody else gave it its name
                    raise
            directories.add(final.above.path)
        elif not _is_there(final, file):
            lost.append(file)
    for path in sorted(directories):
        sync(place._replace(path=path))
    return lost


def _is_there(place: FilePlace, file: LandedFile) -> bool:
    """Whether the file, staged or under its name, lies there as it was written."""
    return place.size() == file.size_bytes


def _taken_back(place: FilePlace, state: ArchiveState, lost: Sequence[LandedFile]) -> ArchiveState:
    """The archive without its last batch, whose files go. An earlier version does not say where that began, and passed over
    files that somebody had merged: there the batch stays."""
    names = ", ".join(file.path for file in lost[:3]) + (f" and {len(lost) - 3} others" if lost[3:] else "")
    if state.before is None:
        log.warning("%s: %s of the last batch are not there; they were moved, or are lost", place.path, names)
        return state
    log.warning("%s: %s of the last batch were lost; it is taken back and archived again", place.path, names)
    for file in state.files:
        final = place.under(file.path)
        if _is_there(final, file):
            with write_failures(final.path):
                place.file_system.delete_file(final.path)
    return state.without_last()


def _stored(place: FilePlace) -> ArchiveState | None:
    state = place.under(STATE)
    content = state.content()
    return None if content is None else decode(content, state.path)


def _remove(directory: FilePlace) -> None:
    if directory.kind() is fs.FileType.Directory:
        with write_failures(directory.path):
            directory.file_system.delete_dir(directory.path)


@contextmanager
def _locked(place: FilePlace) -> Iterator[None]:
    path = place.under(LOCK).path
    with write_failures(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreLockedError(
                f"another run archives into {place.path}", remedy="wait for it, or stop it"
            ) from error
        yield
    finally:
        os.close(descriptor)
