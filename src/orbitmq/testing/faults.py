"""A file system that can fail, be killed, and lose power, for tests of everything that stores.

`RecordingFiles` passes every call on to another `Files` and keeps a journal of what was changed and what was synced. A
plan may make any call fail or end the "process" (`Killed`). From the journal `power_cut` builds a directory as the disk
may hold it afterwards: everything synced, and any part of the rest.

Rules of this file
1. A synced byte is never lost, and a synced name neither. Of unsynced writes any subset survives, page by page; of
   unsynced changes to names and sizes a prefix survives, as on a file system with an ordered journal.
2. All choices come from one random generator: a seed repeats a run.
"""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from orbitmq.store.files import Buffer, DiskUsage, File, Files, Lock, replace_content

PAGE_BYTES = 4096


class Killed(BaseException):
    """The process ends here: nothing after this call happens."""


class Call(NamedTuple):
    """One call about to be made: `number` counts calls that change or sync something, from 1."""

    number: int
    kind: str
    path: Path
    size: int


Plan = Callable[[Call], OSError | Killed | None]
"""Says what to raise instead of making the call; None lets it pass. A killed write may have happened in part."""


class _Inode:
    """Content of one file as a list of changes; those before `synced` are on the disk."""

    __slots__ = ("changes", "mapped", "synced")

    def __init__(self) -> None:
        self.changes: list[tuple[int, bytes] | _Resize] = []
        """(offset, data) for a write."""
        self.synced = 0
        self.mapped: mmap.mmap | None = None

    def note_mapped(self) -> None:
        """Stores into the mapping are seen only by looking at it."""
        if self.mapped is not None and not self.mapped.closed:
            self.changes.append((0, self.mapped[:]))


class _Resize(NamedTuple):
    size: int
    number: int
    """Place in the journal, which names share."""


class _NameChange(NamedTuple):
    kind: str
    path: Path
    number: int
    """Place in the journal."""
    target: Path | None = None
    inode: _Inode | None = None


class RecordingFiles:
    """A `Files` over another one. Only paths below `root` are recorded."""

    def __init__(self, inner: Files, root: Path, *, plan: Plan | None = None, boot: str = "boot") -> None:
        self._inner = inner
        self.root = root
        self.plan = plan
        self.boot = boot
        self.calls: list[Call] = []
        self.killed = False
        self._number = 0
        self._journal = 0
        self._inodes: dict[Path, _Inode] = {}
        self._names: list[_NameChange] = []
        self._names_synced = 0
        self._take_up(root)

    def _take_up(self, directory: Path) -> None:
        """What is there at the start counts as synced."""
        for name in self._inner.list_dir(directory):
            path = directory / name
            if self._inner.is_dir(path):
                self._name("mkdir", path)
                self._take_up(path)
            else:
                inode = _Inode()
                inode.changes.append((0, self._inner.read_bytes(path)))
                inode.synced = 1
                self._inodes[path] = inode
                self._name("create", path, inode=inode)
        self._names_synced = len(self._names)

    def revive(self, plan: Plan | None = None) -> None:
        """A new process on the same machine: what the killed one had written, synced or not, is still there."""
        self.killed = False
        self.plan = plan

    # --- planned failures -------------------------------------------------------------------------------------------

    def ask(self, kind: str, path: Path, size: int = 0) -> Killed | None:
        """Count a call and raise what the plan says; a Killed is returned to writes, which then happen in part."""
        if self.killed:
            raise Killed(f"{kind} {path} after the end")
        self._number += 1
        call = Call(self._number, kind, path, size)
        self.calls.append(call)
        verdict = self.plan(call) if self.plan is not None else None
        if verdict is None:
            return None
        if isinstance(verdict, Killed):
            self.killed = True
            if kind == "write":
                return verdict
        raise verdict

    def journaled(self) -> int:
        """The next place in the journal of names and sizes."""
        self._journal += 1
        return self._journal

    def _name(self, kind: str, path: Path, target: Path | None = None, inode: _Inode | None = None) -> None:
        self._names.append(_NameChange(kind, path, self.journaled(), target, inode))

    # --- Files ------------------------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> File:
        if create and not self._inner.exists(path):
            self.ask("create", path)
            inode = _Inode()
            self._inodes[path] = inode
            self._name("create", path, inode=inode)
        elif self.killed:
            raise Killed(f"open {path} after the end")
        return RecordingFile(self, self._inner.open(path, create=create, writable=writable), self._inodes.get(path))

    def exists(self, path: Path) -> bool:
        return self._inner.exists(path)

    def is_dir(self, path: Path) -> bool:
        return self._inner.is_dir(path)

    def list_dir(self, path: Path) -> list[str]:
        return self._inner.list_dir(path)

    def make_dirs(self, path: Path) -> None:
        if not self._inner.exists(path):
            self.ask("mkdir", path)
            for parent in reversed([path, *path.parents]):
                if not self._inner.exists(parent):
                    self._name("mkdir", parent)
            self._inner.make_dirs(path)

    def remove(self, path: Path) -> None:
        self.ask("remove", path)
        self._inner.remove(path)
        self._inodes.pop(path, None)
        self._name("remove", path)

    def remove_tree(self, path: Path) -> None:
        self.ask("remove", path)
        self._inner.remove_tree(path)
        for known in [known for known in self._inodes if path in known.parents]:
            del self._inodes[known]
        self._name("remove", path)

    def rename(self, source: Path, target: Path) -> None:
        self.ask("rename", source)
        self._inner.rename(source, target)
        for known in [known for known in self._inodes if known == source or source in known.parents]:
            self._inodes[_moved(known, source, target)] = self._inodes.pop(known)
        self._name("rename", source, target)

    def sync_dir(self, path: Path) -> None:
        self.ask("sync_dir", path)
        self._inner.sync_dir(path)
        self._names_synced = len(self._names)

    def file_size(self, path: Path) -> int:
        return self._inner.file_size(path)

    def modified_ms(self, path: Path) -> int:
        return self._inner.modified_ms(path)

    def read_bytes(self, path: Path) -> bytes:
        return self._inner.read_bytes(path)

    def write_atomic(self, path: Path, data: bytes, *, backup: bool = False) -> None:
        replace_content(self, path, data, backup=backup)

    def disk_usage(self, path: Path) -> DiskUsage:
        return self._inner.disk_usage(path)

    def boot_id(self) -> str:
        return self.boot

    def lock(self, path: Path) -> Lock:
        lock = self._inner.lock(path)
        if path not in self._inodes:
            inode = _Inode()
            inode.changes.append((0, b"lock"))
            self._inodes[path] = inode
            self._name("create", path, inode=inode)
        return lock

    # --- the disk after a power failure -----------------------------------------------------------------------------

    def power_cut(self, target: Path, rng: random.Random, *, keep: float | None = None) -> None:
        """Write into `target` what the disk may hold if power fails now.

        `keep` is the chance of every unsynced page to survive; by default it is drawn as well, with 0 and 1 likely.
        """
        chance = rng.choice((0.0, 1.0, rng.random())) if keep is None else keep
        synced = self._names[self._names_synced - 1].number if self._names_synced else 0
        journal = rng.randint(synced, self._journal)
        survivors = [change for change in self._names if change.number <= journal]
        target.mkdir(parents=True, exist_ok=True)
        for path, inode in self._directory(survivors, target):
            place = target / path.relative_to(self.root)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(_surviving_content(inode, rng, chance, journal))

    def _directory(self, changes: Sequence[_NameChange], target: Path) -> Iterator[tuple[Path, _Inode]]:
        files: dict[Path, _Inode] = {}
        for change in changes:
            if change.kind == "create" and change.inode is not None:
                files[change.path] = change.inode
            elif change.kind == "remove":
                for path in [path for path in files if path == change.path or change.path in path.parents]:
                    del files[path]
            elif change.kind == "rename" and change.target is not None:
                for path in [path for path in files if path == change.path or change.path in path.parents]:
                    files[_moved(path, change.path, change.target)] = files.pop(path)
            elif change.kind == "mkdir" and self.root in change.path.parents:
                (target / change.path.relative_to(self.root)).mkdir(parents=True, exist_ok=True)
        yield from files.items()


def _moved(path: Path, source: Path, target: Path) -> Path:
    """Where a file is after its directory, or itself, was renamed."""
    return target / path.relative_to(source)


def _surviving_content(inode: _Inode, rng: random.Random, chance: float, journal: int) -> bytes:
    content = bytearray()
    for change in inode.changes[: inode.synced]:
        _apply(content, change)
    later = list(inode.changes[inode.synced :])
    if inode.mapped is not None and not inode.mapped.closed:
        later.append((0, inode.mapped[:]))
    for change in later:
        if isinstance(change, _Resize):
            if change.number > journal:
                break
            _apply(content, change)
            continue
        offset, data = change
        begin = 0
        while begin < len(data):
            end = min(len(data), ((offset + begin) // PAGE_BYTES + 1) * PAGE_BYTES - offset)
            if rng.random() < chance:
                _apply(content, (offset + begin, data[begin:end]))
            begin = end
    return bytes(content)


def _apply(content: bytearray, change: tuple[int, bytes] | _Resize) -> None:
    if isinstance(change, _Resize):
        if change.size < len(content):
            del content[change.size :]
        else:
            content.extend(bytes(change.size - len(content)))
        return
    offset, data = change
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class RecordingFile:
    """A `File` whose changes are recorded."""

    def __init__(self, files: RecordingFiles, inner: File, inode: _Inode | None) -> None:
        self._files = files
        self._inner = inner
        self._inode = inode

    @property
    def path(self) -> Path:
        return self._inner.path

    def size(self) -> int:
        return self._inner.size()

    def _record(self, change: tuple[int, bytes] | _Resize) -> None:
        if self._inode is not None:
            self._inode.changes.append(change)

    def pwrite(self, data: Buffer, offset: int) -> None:
        content = bytes(data)
        killed = self._files.ask("write", self.path, len(content))
        if killed is not None:
            part = content[: hash((len(content), offset)) % (len(content) + 1)]
            self._inner.pwrite(part, offset)
            self._record((offset, part))
            raise killed
        self._inner.pwrite(content, offset)
        self._record((offset, content))

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> None:
        self.pwrite(b"".join(parts), offset)

    def pread(self, size: int, offset: int) -> bytes:
        return self._inner.pread(size, offset)

    def datasync(self) -> None:
        self._files.ask("sync", self.path)
        self._inner.datasync()
        if self._inode is not None:
            self._inode.note_mapped()
            self._inode.synced = len(self._inode.changes)

    def truncate(self, size: int) -> None:
        self._files.ask("truncate", self.path, size)
        self._inner.truncate(size)
        self._record(_Resize(size, self._files.journaled()))

    def allocate(self, offset: int, size: int) -> None:
        self._files.ask("allocate", self.path, size)
        before = self._inner.size()
        self._inner.allocate(offset, size)
        self._record(_Resize(max(before, offset + size), self._files.journaled()))

    def punch(self, offset: int, size: int) -> None:
        self._files.ask("punch", self.path, size)
        self._inner.punch(offset, size)
        end = min(offset + size, self._inner.size())
        self._record((offset, bytes(max(end - offset, 0))))

    def data_ranges(self, start: int) -> Iterator[tuple[int, int]]:
        return self._inner.data_ranges(start)

    def map_read(self) -> mmap.mmap:
        return self._inner.map_read()

    def map_write(self, size: int) -> mmap.mmap:
        mapped = self._inner.map_write(size)
        if self._inode is not None:
            self._inode.mapped = mapped
        return mapped

    def close(self) -> None:
        if self._inode is not None:
            self._inode.note_mapped()
        self._inner.close()
