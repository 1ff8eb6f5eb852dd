"""The directory `orbitmq.timerindex`: which files of the index count.

Runs and journals are numbered in the order in which they were begun. The file `manifest` (JSON in a block
with a checksum) lists the runs that count, says up
to which queue offset they are complete, and from which number on journals count besides. It is replaced as a whole, and only after
the runs that it lists were synced; only then is removed what it lists no longer. So after any crash there is one state of the
index on the disk, and everything else there is left over and goes.

Rules of this file
1. Nothing here knows what runs and journals say; `check_index` asks only whether their sums are right.
2. The directory is made with the first timer; a store that never saw one has none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.store.blocks import decode_blocks, encode_block
from orbitmq.store.files import Files
from orbitmq.timing.index.journal import NOTHING, Witness, load_journal
from orbitmq.timing.index.run import Run

logger = logging.getLogger("orbitmq.timing")

INDEX_DIRECTORY: Final = "orbitmq.timerindex"
MANIFEST: Final = "manifest"
MAGIC: Final = b"ORBTIMF1"
_LIST: Final = 1
_RUN: Final = ".run"
_JOURNAL: Final = ".journal"


class ListedRun(msgspec.Struct, frozen=True, array_like=True):
    """A run that counts, with the range of queue offsets of its entries: what to look for again when it is damaged."""

    number: int
    begin_offset: int
    end_offset: int


class Manifest(msgspec.Struct, frozen=True):
    runs: list[ListedRun] = []
    missing: list[tuple[int, int]] = []
    """Ranges of queue offsets of which the index does not know what is pending."""
    covered: Witness = NOTHING
    """With the runs, and but for what is missing, everything below its end is known."""
    journals_from: int = 0
    """Number of the oldest journal that counts."""
    version: int = 1


FIRST_NUMBER: Final = 1
"""Of a journal: a gathering has one before there is a run of it. Where it is still there, nothing was saved yet and the journals hold
what the runs do."""

VERSION: Final = 2
"""Version of the manifests that are written. Runs of the first version do not say to which topic each entry belongs."""


class Work(NamedTuple):
    """What a durable save has to do, in this order; made on the owner's thread, done on the worker."""

    sync: list[Path]
    manifest: Manifest
    remove: list[Path]


class IndexDirectory:
    """Names of files, and the manifest."""

    __slots__ = ("_files", "_made", "next_number", "path")

    def __init__(self, files: Files, root: Path) -> None:
        self._files = files
        self._made = False
        self.path = root / INDEX_DIRECTORY
        self.next_number = FIRST_NUMBER

    @property
    def exists(self) -> bool:
        return self._files.exists(self.path)

    def run_path(self, number: int) -> Path:
        return self.path / f"{number:010d}{_RUN}"

    def journal_path(self, number: int) -> Path:
        return self.path / f"{number:010d}{_JOURNAL}"

    def new_number(self) -> int:
        """A number that no file has. Makes the directory. Raises OSError."""
        if not self._made:
            self._files.make_dirs(self.path)
            self._made = True
        number = self.next_number
        self.next_number += 1
        return number

    def load(self) -> tuple[Manifest | None, list[int]]:
        """The manifest, or None when there is none that can be read, and the numbers of the journals, ascending."""
        names = self._files.list_dir(self.path)
        numbers = [int(name.partition(".")[0]) for name in names if name.partition(".")[0].isdigit()]
        journals = [int(name.removesuffix(_JOURNAL)) for name in names if _is_numbered(name, _JOURNAL)]
        manifest = _decode(self._files.read_bytes(self.path / MANIFEST)) if MANIFEST in names else None
        if manifest is not None:  # a file that is gone leaves its number to no other while a manifest lists it
            numbers += [manifest.journals_from - 1, *(run.number for run in manifest.runs)]
        self.next_number = max(numbers, default=0) + 1
        if manifest is not None and manifest.version < VERSION:
            logger.warning("%s is of an earlier version: what waits is collected from the log once", self.path)
            return Manifest(journals_from=self.next_number), []
        has_runs = any(name.endswith(_RUN) for name in names)
        if manifest is None and (MANIFEST in names or (has_runs and FIRST_NUMBER not in journals)):
            logger.error(
                "%s is damaged or gone; what the runs held is collected from the log again", self.path / MANIFEST
            )
        return manifest, journals

    def remove_others(self, keep: Sequence[Path]) -> None:
        """Remove every file that is neither the manifest nor in `keep`: left over from a crash."""
        kept = {MANIFEST, *(path.name for path in keep)}
        for name in self._files.list_dir(self.path):
            if name not in kept:
                self._files.remove(self.path / name)

    def save(self, work: Work) -> None:
        """Durable on return. Blocks. Raises OSError; then the old manifest holds, or already the new one."""
        for path in work.sync:
            file = self._files.open(path)
            try:
                file.datasync()
            finally:
                file.close()
        self._files.write_atomic(self.path / MANIFEST, _encode(work.manifest))
        for path in work.remove:
            if self._files.exists(path):
                self._files.remove(path)


def _encode(manifest: Manifest) -> bytes:
    return MAGIC + encode_block(_LIST, msgspec.json.encode(manifest))


def _decode(content: bytes) -> Manifest | None:
    block = next(decode_blocks(content, MAGIC), None)
    if block is None or block.end != len(content):
        return None
    try:
        return msgspec.json.decode(block.body, type=Manifest)
    except msgspec.MsgspecError:
        return None


def _is_numbered(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and name.removesuffix(suffix).isdigit()


Tell = Callable[[Path, str], None]


def check_index(files: Files, root: Path, find: Tell, note: Tell) -> None:
    """Reads every byte of the runs, 1 ms a megabyte. `find` is told of damage, `note` of what a kill leaves behind."""
    directory = IndexDirectory(files, root)
    if not directory.exists:
        return
    manifest, journals = directory.load()
    if manifest is None:
        if files.exists(directory.path / MANIFEST):
            find(directory.path / MANIFEST, "is damaged: the index of timers is made again at the next start")
    else:
        for listed in manifest.runs:
            path = directory.run_path(listed.number)
            try:
                problem = Run(files, path).check()
            except (StoreDamagedError, OSError) as error:
                problem = str(error)
            if problem is not None:
                find(path, f"{problem}; what it held is collected from the log at the next start")
    for number in journals:
        if manifest is None or number >= manifest.journals_from:
            path = directory.journal_path(number)
            loaded = load_journal(files, path)
            if loaded is None:
                note(path, "holds no whole block")
            elif loaded.good_bytes < files.file_size(path):
                note(path, f"ends in {files.file_size(path) - loaded.good_bytes} bytes that are no whole block")
