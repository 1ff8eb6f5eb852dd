"""The file in which a broadcasting consumer keeps its offsets, in RocketMQ's own form and at its place.

    <folder>/<client id>/<group>/offsets.json        {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:7}}
    <folder>/<client id>/<group>/offsets.json.bak    what it was before

A Java consumer of the same client id and group reads it, and the other way round.

Rules of this file
1. A write replaces the file as a whole: a reader sees the old or the new one. What was there before stays as `.bak`, and is read when
   the file itself is missing or cannot be read.
2. One consumer at a time: the folder is locked while it runs, because two would overwrite each other's progress.
3. Offsets of queues that the writer does not own stay in the file: another run may own them again.
4. It is written without fsync: it survives the end of the process at any moment. After a power failure it may be seconds older.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

from orbitmq.errors import ClientError, ConfigurationError, ProtocolError
from orbitmq.limits.client import OFFSETS_FILE_BYTES_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue, ResetOffsetBody

DEFAULT_FOLDER: Final = ".rocketmq_offsets"
"""In the home directory."""


def offsets_folder(folder: str | None, client_id: str, group: str) -> Path:
    """Where the offsets of one consumer are. `%RETRY%`-like characters of a group are legal in file names."""
    root = Path(folder) if folder is not None else Path.home() / DEFAULT_FOLDER
    return root / client_id / group


class OffsetsFile:
    """The offsets of one broadcasting consumer. Locked from `open` to `close`.

    `offsets` is what the file holds.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "offsets.json"
        self.offsets: dict[MessageQueue, int] = {}
        self._lock: IO[bytes] | None = None

    def open(self) -> str | None:
        """Lock and read it; a file that is not there yet is empty. A problem in words when only the `.bak` could be read.

        `ConfigurationError` when another consumer has it or the folder cannot be used; `ClientError` when it is damaged and so is its
        `.bak`.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path.parent / "lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ConfigurationError(
                f"another broadcasting consumer keeps its offsets in {self.path.parent}",
                remedy="give each client on this machine its own ClientOptions(instance_name=...)",
            ) from None
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"offsets of a broadcasting consumer cannot be kept in {self.path.parent}: {error.strerror or error}",
                remedy="name a writable folder: ConsumerOptions(offsets_folder=...)",
            ) from error
        try:
            return self._read()
        except BaseException:
            self.close()
            raise

    def write(self, changed: Mapping[MessageQueue, int]) -> None:
        """Replace the file by one that has these offsets as well. `ClientError`."""
        merged = {**self.offsets, **changed}
        data = encode_offsets(merged)
        fresh = self.path.with_name(self.path.name + ".tmp")
        try:
            fresh.write_bytes(data)
            if self.path.exists():
                kept = self.path.with_name(self.path.name + ".bak.tmp")
                kept.unlink(missing_ok=True)
                os.link(self.path, kept)  # never a moment without a whole file under both names
                kept.replace(self._backup)
            fresh.replace(self.path)
        except OSError as error:
            raise ClientError(f"offsets were not written to {self.path}: {error.strerror or error}") from error
        self.offsets = merged

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def _backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    def _read(self) -> str | None:
        problem: str | None = None
        for path in (self.path, self._backup):
            try:
                with path.open("rb") as file:
                    data = file.read(OFFSETS_FILE_BYTES_MAX + 1)
                self.offsets = decode_offsets(data)
                return problem
            except FileNotFoundError:
                continue
            except (OSError, ProtocolError) as error:
                problem = f"{path} cannot be read: {error}"
        if problem is not None:
            raise ClientError(problem, remedy="remove the file to begin as a new consumer, or restore it")
        return None


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    return ResetOffsetBody(offset_table=dict(offsets)).encode()


def decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    """`ProtocolError` when it is no table of offsets, and for an empty file, which a power failure may leave."""
    if not data.strip():
        raise ProtocolError("the file is empty")
    if len(data) > OFFSETS_FILE_BYTES_MAX:
        raise ProtocolError(f"the file has more than {OFFSETS_FILE_BYTES_MAX} bytes")
    return ResetOffsetBody.decode(data).offset_table
