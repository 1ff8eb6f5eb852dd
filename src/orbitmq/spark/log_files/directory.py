"""A store directory as the driver sees it: the commit-log files, and where the log ends.

orbitmq writes into its recovery mark up to where the log may be read. Without a mark to believe, the log ends behind the last
sound record of the chain in the last file that is not empty: what follows is a record still being written, zeros that
were reserved, or bytes of an earlier, longer log. Those are told from damage by the time they were stored.

Rules of this file
1. A gap or a stranger among the files is an error, as when a broker opens them.
2. Where a mark says the end, nothing behind it is looked at; without one the last file is walked through.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow.fs as fs

from orbitmq.columns.records import examine
from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.protocol.records import decode_record
from orbitmq.spark.log_files.chain import Chain, RecordPiece, find_record, read_record
from orbitmq.spark.log_files.places import FilePlace, OpenFile, place_at
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.files import OsFiles
from orbitmq.store.mark import MARK_FILE, confirmed_offset

COMMIT_LOG: Final = "commitlog"
CHECKPOINT: Final = "checkpoint"
_NAME_DIGITS: Final = 20
_HEAD_BYTES: Final = 8


class LogFile(NamedTuple):
    """One commit-log file: bytes `base` to `end` of the log."""

    path: str
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size


class LogDirectory(NamedTuple):
    """The files in order, and where the log ends."""

    files: tuple[LogFile, ...]
    end: int

    @property
    def start(self) -> int:
        return self.files[0].base if self.files else 0


def look_at(path: str) -> LogDirectory:
    """The log in a store directory or a `commitlog` directory. Raises ConfigurationError when there is none, StoreDamagedError
    when files are missing."""
    place = place_at(path)
    if place.kind() is not fs.FileType.Directory:
        raise ConfigurationError(f"{path} is no directory", remedy="give a store directory, or its commitlog")
    log = place.under(COMMIT_LOG)
    root = place
    if log.kind() is not fs.FileType.Directory:
        log, root = place, place.above
    files = _log_files(log)
    if not files and log is place:
        raise ConfigurationError(
            f"{path} holds no commit log: there is neither a directory {COMMIT_LOG} nor a file named by {_NAME_DIGITS} digits",
            remedy="give a store directory, or its commitlog",
        )
    end = _confirmed(root)
    if end is None:
        end = _found_end(log, files)
    elif files and end > files[-1].end:
        raise StoreDamagedError(
            f"{log.path} ends at offset {files[-1].end}, the log reached {end}",
            remedy="files are missing at the end; bring them back",
        )
    return LogDirectory(files, end)


def _log_files(log: FilePlace) -> tuple[LogFile, ...]:
    """The files of the log; an empty last one, left by a crash between its creation and its sizing, does not count."""
    found: list[LogFile] = []
    names = log.files()
    for number, (name, size) in enumerate(names):
        if not (len(name) == _NAME_DIGITS and name.isascii() and name.isdigit()):
            if log.path.rstrip("/").rpartition("/")[2] != COMMIT_LOG and not found:
                return ()
            raise StoreDamagedError(
                f"{log.path}/{name} does not belong here: files of a log are named by {_NAME_DIGITS} digits",
                remedy="move it elsewhere; a broker would refuse the store as well",
            )
        if size == 0 and number == len(names) - 1:
            continue
        if found and int(name) != found[-1].end:
            raise StoreDamagedError(
                f"{log.path}/{name} does not follow {found[-1].path} of {found[-1].size} bytes: files are missing, or one is not whole",
                remedy="bring them back, or read the parts from directories of their own",
            )
        found.append(LogFile(log.under(name).path, int(name), size))
    return tuple(found)


def _confirmed(root: FilePlace) -> int | None:
    mark = root.under(MARK_FILE).content()
    if mark is None:
        return None
    checkpoint = Checkpoint.decode(root.under(CHECKPOINT).content() or b"")
    return confirmed_offset(mark, checkpoint, OsFiles().boot_id())


def _found_end(log: FilePlace, files: tuple[LogFile, ...]) -> int:
    """The end of a log that no mark speaks of."""
    for file in reversed(files):
        with FilePlace(log.file_system, file.path).opened() as opened:
            if any(opened.read(0, min(_HEAD_BYTES, file.size))):
                return _end_in(opened, file)
    return files[0].base if files else 0


def _end_in(opened: OpenFile, file: LogFile) -> int:
    """Follows the records once, from size to size: 0.3 s for a GiB of messages of 1 KB. What was found is not kept for the next
    time: a broker that starts again may take back what it wrote last, and write something else there."""
    at = end = newest_ms = 0
    while True:
        chain = Chain(opened, file.base, file.size, at, file.size)
        last: RecordPiece | None = None
        for piece in chain:
            last = piece
        if last is not None:
            # The record that was written last may be unfinished: of the last piece every byte is looked at.
            layout = examine(last.data, last.starts, base=file.base + last.at, sums=chain.is_last(last)).layout
            end = last.at + int(layout.ends[-1]) if layout.count else max(end, last.at if last.at > at else 0)
            if layout.count:
                newest_ms = max(newest_ms, int(layout.numbers("storeTimestamp").max()))
        if chain.broken is None:
            return file.end
        # A stretch that is no record is damage where records follow that are as new as those before it, else the end.
        at = find_record(opened, file.base, chain.at + 1, file.size)
        while at < file.size and _stored_ms(opened, at) < newest_ms:
            at = find_record(opened, file.base, at + 1, file.size)
        if at >= file.size:
            return file.base + end


def _stored_ms(opened: OpenFile, at: int) -> int:
    return decode_record(read_record(opened, at), body=False).store_timestamp
