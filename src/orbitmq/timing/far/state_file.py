"""The saved state of the far tier, `orbitmq.far`: one line of JSON and a line with its CRC-32.

It speaks of a log position: what the log says from there on is applied again. Because log files go and files of the tier stay, it is
more than a cache: a copy of it lies in the tier, as `manifest.json`.

Rules of this file
1. The state is saved with every durable save in which it changed, after the log was synced: it never leads the log.
2. The log may go only as far as the state needs it that is durable; see `lowest_needed`.
"""

from __future__ import annotations

import logging
import os
import zlib
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import Files
from orbitmq.timing.far.buffered import Buffered
from orbitmq.timing.far.changes import FarFile
from orbitmq.timing.far.loads import LoadedJob

logger = logging.getLogger("orbitmq.timing")

STATE_FILE: Final = "orbitmq.far"
MANIFEST_FILE: Final = "manifest.json"
_VERSION: Final = 1


class SavedState(msgspec.Struct, kw_only=True):
    """The content of the state file."""

    version: int = _VERSION
    serial: int
    store: str
    """Tells the files of this store from those of another."""
    position: int
    """Log position up to which the state contains what the log says."""
    landed_to: int
    """Queue offset in the far topic below which every message is in a file or finished."""
    next_offset: int
    """Queue offset of the first far record that is not counted here."""
    done: dict[int, int]
    files: list[FarFile]
    tombstones: list[tuple[int, int]]
    unmarked: list[int] = msgspec.field(name="handed")
    pending: int
    by_topic: dict[str, int]
    by_day: dict[int, int]
    loaded_rows: int = 0
    jobs: list[LoadedJob] = msgspec.field(default_factory=list)


def encode_state(saved: SavedState) -> bytes:
    line = msgspec.json.encode(saved)
    return b"%s\n%08x\n" % (line, zlib.crc32(line))


def decode_state(content: bytes) -> SavedState:
    """Raises StoreDamagedError."""
    line, _, rest = content.partition(b"\n")
    if rest.strip() != b"%08x" % zlib.crc32(line):
        raise StoreDamagedError(f"{STATE_FILE} fails its check")
    try:
        saved = msgspec.json.decode(line, type=SavedState)
    except msgspec.MsgspecError as error:
        raise StoreDamagedError(f"{STATE_FILE} cannot be read: {error}") from error
    if saved.version != _VERSION:
        raise StoreDamagedError(f"{STATE_FILE} has version {saved.version}, this program knows {_VERSION}")
    return saved


class StateToSave(Protocol):
    """The state that is saved; see `FarState`."""

    buffered: Buffered
    position: int
    first_stored: int
    is_changed: bool

    def saved(self, serial: int, store: str) -> SavedState: ...


class _Durable(NamedTuple):
    """The state on disk: its number, and from which log position on it needs the log."""

    serial: int
    needed: int
    position: int
    """Log position up to which it contains what the log says."""


class StateFile:
    """The state file of one store, written and read."""

    def __init__(self, files: Files, root: Path, clock: Clock, held: StateToSave) -> None:
        self._files = files
        self._path = root / STATE_FILE
        self._clock = clock
        self._held = held
        self._serial = 0
        self._durable: _Durable | None = None
        self._syncing: tuple[bytes, _Durable] | None = None
        self.store_id = ""
        """Tells this store's files from those of another."""
        self.content: bytes | None = None
        """The state that is durable."""

    @property
    def serial(self) -> int:
        """Number of the state that is durable; 0 before the first."""
        return 0 if self._durable is None else self._durable.serial

    @property
    def position(self) -> int:
        """Log position up to which the state that is durable contains what the log says."""
        return 0 if self._durable is None else self._durable.position

    @property
    def _is_unsaved(self) -> bool:
        return self._held.is_changed or (not self._serial and self._held.buffered.next_offset > 0)

    @property
    def is_saved(self) -> bool:
        """Whether the durable state says all that the log says; always where there was never a far message."""
        return not self._is_unsaved and self.serial == self._serial

    def mark(self) -> dict[str, object]:
        """Content of the store's recovery mark, which is read after the next start."""
        return {"serial": self._serial, "changed": self._is_unsaved}

    def begin(self) -> int | None:
        """Note the state that `write` is to save, and answer its number; None when it did not change."""
        self._syncing = None
        if not self._is_unsaved:
            return None
        self.store_id = self.store_id or self._new_store_id()
        self._serial += 1
        saved = self._held.saved(self._serial, self.store_id)
        self._syncing = encode_state(saved), _Durable(self._serial, self._first_needed(), saved.position)
        return self._serial

    def write(self) -> None:
        """Blocks; runs on the flush thread. What cannot be written stays needed in the log."""
        if self._syncing is None:
            return
        content, durable = self._syncing
        try:
            self._files.write_atomic(self._path, content)
        except OSError as error:
            self._held.is_changed = True
            logger.error("the state of the far tier was not saved, the log stays as long as it is needed: %s", error)
            return
        self._durable, self.content = durable, content

    def _first_needed(self) -> int:
        oldest = self._held.buffered.oldest
        return self._held.position if oldest is None else min(oldest.physical_offset, self._held.position)

    def lowest_needed(self) -> int | None:
        """Log position from which on the log is needed, by the messages that no file holds and by the durable state; None when all of it
        may go."""
        oldest = self._held.buffered.oldest
        oldest_at = None if oldest is None else oldest.physical_offset
        if not self._is_unsaved and (self._durable is None or self._durable.serial == self._serial):
            return oldest_at
        if self._durable is not None:
            return self._durable.needed
        return self._held.first_stored if oldest_at is None else min(self._held.first_stored, oldest_at)

    # --- after a start ----------------------------------------------------------------------------------------------

    def load(self) -> SavedState | None:
        """The state file's content. Raises StoreDamagedError."""
        if not self._files.exists(self._path):
            return None
        content = self._files.read_bytes(self._path)
        try:
            saved = decode_state(content)
        except StoreDamagedError as error:
            raise StoreDamagedError(
                f"{self._path}: {error}",
                remedy="copy manifest.json from the far tier's directory over it; it is the same file, at most minutes older",
            ) from error
        self.content, self._serial, self.store_id = content, saved.serial, saved.store
        return saved

    def restored(self) -> None:
        """The state that was loaded is complete, with what the log says of it."""
        self._durable = _Durable(self._serial, self._first_needed(), self._held.position)

    # --- from another broker ----------------------------------------------------------------------------------------

    def write_taken(self, saved: SavedState) -> tuple[bytes, SavedState]:
        """Make the state of another broker with this log this store's own file, which has none yet. Blocks; durable on return. Raises
        OSError. `taken` goes on with what it answers."""
        own = msgspec.structs.replace(saved, serial=1, store=self._new_store_id())
        content = encode_state(own)
        self._files.write_atomic(self._path, content)
        return content, own

    def taken(self, content: bytes, saved: SavedState) -> None:
        """What `write_taken` wrote is in use, and durable."""
        self.content, self._serial, self.store_id = content, saved.serial, saved.store
        self._durable = _Durable(saved.serial, 0, saved.position)

    def _new_store_id(self) -> str:
        return f"{self._clock.now_ms():x}-{os.urandom(6).hex()}"
