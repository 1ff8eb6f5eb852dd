"""A file system that can fail, be killed, and lose power, for tests of everything that stores.

`RecordingFiles` passes every call on to another `Files` and keeps a journal of what was changed and what was synced. A
plan may make any call fail or end the "process" (`Killed`). From the journal `power_cut` builds a directory as the disk
may hold it afterwards: everything synced, and any part of the rest.

Rules of this file
1. A synced byte is never lost, and a synced name neither. Of unsynced writes any subset survives, page by page; of
   unsynced changes to names and sizes a prefix survives, as on a file system with an ordered journal.
2. All choices come from one random generator: a seed repeats a run.
3. A disk with a `room` is full for as long as nobody gives space back, for whatever needs some, an undo included.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from orbitmq.store.files import Buffer, DiskUsage, File, Files, Lock, NotReadError
from orbitmq.store.forwarding import ForwardedFile, ForwardedFiles

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


class Room:
    """The pages of a small disk: files take one when a byte of it is first written, and give it back when they are cut or removed."""

    def __init__(self, pages: int, *, undo_takes_room: bool = False) -> None:
        """`undo_takes_room`: overwriting takes a page as well, as where a file system does not write in place."""
        self.pages = pages
        self.free = pages
        self.others = 0
        """Pages that other programs hold."""
        self.undo_takes_room = undo_takes_room
        self._of: dict[_Inode, set[int]] = {}

    def fill(self) -> None:
        """Other programs take what is left."""
        self.others, self.free = self.others + self.free, 0

    def clear(self) -> None:
        """Other programs give back what they took."""
        self.others, self.free = 0, self.free + self.others

    def write(self, inode: _Inode, offset: int, size: int) -> int:
        """How many of the bytes find room."""
        held = self._of.setdefault(inode, set())
        for page in range(offset // PAGE_BYTES, -(-(offset + size) // PAGE_BYTES)):
            if page not in held:
                if not self.free:
                    return max(page * PAGE_BYTES - offset, 0)
                self.free -= 1
                held.add(page)
        return size

    def cut(self, inode: _Inode, size: int) -> None:
        held = self._of.get(inode, set())
        gone = {page for page in held if page * PAGE_BYTES >= size}
        held -= gone
        self.free += len(gone)


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


class RecordingFiles(ForwardedFiles):
    """A `Files` over another one. Only paths below `root` are recorded."""

    def __init__(
        self, inner: Files, root: Path, *, plan: Plan | None = None, boot: str = "boot", room: Room | None = None
    ) -> None:
        super().__init__(inner)
        self.root = root
        self.plan = plan
        self.boot = boot
        self.read_plan: Plan | None = None
        """As `plan`, for reads through a descriptor."""
        self.reads = 0
        self.room = room
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
                inode, content = _Inode(), self._inner.read_bytes(path)
                inode.changes.append((0, content))
                inode.synced = 1
                self._inodes[path] = inode
                if self.room is not None:
                    self.room.write(inode, 0, len(content))
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

    def ask_read(self, path: Path, size: int) -> None:
        """Count a read of a file and raise what the plan for reads says. Reads have numbers of their own."""
        self.reads += 1
        verdict = self.read_plan(Call(self.reads, "read", path, size)) if self.read_plan is not None else None
        if verdict is not None:
            raise NotReadError(*verdict.args) if type(verdict) is OSError else verdict

    def journaled(self) -> int:
        """The next place in the journal of names and sizes."""
        self._journal += 1
        return self._journal

    def _name(self, kind: str, path: Path, target: Path | None = None, inode: _Inode | None = None) -> None:
        self._names.append(_NameChange(kind, path, self.journaled(), target, inode))

    # --- Files ------------------------------------------------------------------------------------------------------

    def open(
        self, path: Path | str, *, create: bool = False, writable: bool = True, keep_unsynced: bool = False
    ) -> File:
        path = Path(path)
        if create and not self._inner.exists(path):
            self._create(path)
        elif self.killed:
            raise Killed(f"open {path} after the end")
        return RecordingFile(self, self._inner.open(path, create=create, writable=writable), self._inodes.get(path))

    def create_private(self, path: Path) -> File:
        if self._inner.exists(path):
            self.remove(path)
        self._create(path)
        return RecordingFile(self, self._inner.create_private(path), self._inodes.get(path))

    def _create(self, path: Path) -> None:
        self.ask("create", path)
        inode = _Inode()
        self._inodes[path] = inode
        self._name("create", path, inode=inode)

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
        self._forget(path)
        self._name("remove", path)

    def remove_tree(self, path: Path) -> None:
        self.ask("remove", path)
        self._inner.remove_tree(path)
        for known in _at_or_below(self._inodes, path):
            self._forget(known)
        self._name("remove", path)

    def rename(self, source: Path, target: Path) -> None:
        self.ask("rename", source)
        self._inner.rename(source, target)
        self._forget(target)
        for known in _at_or_below(self._inodes, source):
            self._inodes[_moved(known, source, target)] = self._inodes.pop(known)
        self._name("rename", source, target)

    def _forget(self, path: Path) -> None:
        inode = self._inodes.pop(path, None)
        if inode is not None and self.room is not None:
            self.room.cut(inode, 0)

    def sync_dir(self, path: Path) -> None:
        self.ask("sync_dir", path)
        self._inner.sync_dir(path)
        self._names_synced = len(self._names)

    def disk_usage(self, path: Path) -> DiskUsage:
        if self.room is not None:
            total, free = self.room.pages * PAGE_BYTES, self.room.free * PAGE_BYTES
            return DiskUsage(total, total - free, free)
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
                for path in _at_or_below(files, change.path):
                    del files[path]
            elif change.kind == "rename" and change.target is not None:
                for path in _at_or_below(files, change.path):
                    files[_moved(path, change.path, change.target)] = files.pop(path)
            elif change.kind == "mkdir" and self.root in change.path.parents:
                (target / change.path.relative_to(self.root)).mkdir(parents=True, exist_ok=True)
        yield from files.items()


def _at_or_below(files: dict[Path, _Inode], path: Path) -> list[Path]:
    """The file of that name, or all of that directory."""
    return [path] if path in files else [known for known in files if path in known.parents]


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


class RecordingFile(ForwardedFile):
    """A `File` whose changes are recorded."""

    def __init__(self, files: RecordingFiles, inner: File, inode: _Inode | None) -> None:
        super().__init__(inner)
        self._files = files
        self._inode = inode

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
        fits = self._room_for(offset, len(content))
        self._inner.pwrite(content[:fits], offset)
        self._record((offset, content[:fits]))
        if fits < len(content):
            raise self._full()

    def _room_for(self, offset: int, size: int) -> int:
        room = self._files.room
        return size if room is None or self._inode is None else room.write(self._inode, offset, size)

    def _full(self) -> OSError:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def pwritev(self, parts: Sequence[Buffer], offset: int) -> None:
        self.pwrite(b"".join(parts), offset)

    def pread(self, size: int, offset: int) -> bytes:
        self._files.ask_read(self.path, size)
        return self._inner.pread(size, offset)

    def pread_now(self, size: int, offset: int) -> bytes | bytearray | None:
        self._files.ask_read(self.path, size)
        return self._inner.pread_now(size, offset)

    def datasync(self) -> None:
        self._files.ask("sync", self.path)
        self._inner.datasync()
        if self._inode is not None:
            self._inode.note_mapped()
            self._inode.synced = len(self._inode.changes)

    def truncate(self, size: int) -> None:
        self._files.ask("truncate", self.path, size)
        self._inner.truncate(size)
        if self._files.room is not None and self._inode is not None:
            self._files.room.cut(self._inode, size)
        self._record(_Resize(size, self._files.journaled()))

    def allocate(self, offset: int, size: int) -> None:
        self._files.ask("allocate", self.path, size)
        before = self._inner.size()
        if self._room_for(offset, size) < size:
            raise self._full()
        self._inner.allocate(offset, size)
        self._record(_Resize(max(before, offset + size), self._files.journaled()))

    def punch(self, offset: int, size: int) -> None:
        self._files.ask("punch", self.path, size)
        end = min(offset + size, self._inner.size())
        room = self._files.room
        if room is not None and room.undo_takes_room and not room.free:
            raise self._full()
        self._inner.punch(offset, size)
        if room is not None and self._inode is not None and end == self._inner.size():
            room.cut(self._inode, offset)
        self._record((offset, bytes(max(end - offset, 0))))

    def map_write(self, size: int) -> mmap.mmap:
        mapped = self._inner.map_write(size)
        if self._inode is not None:
            self._inode.mapped = mapped
        return mapped

    def close(self) -> None:
        if self._inode is not None:
            self._inode.note_mapped()
        self._inner.close()

    def release(self) -> None:
        if self._inode is not None:
            self._inode.note_mapped()
        self._inner.release()
