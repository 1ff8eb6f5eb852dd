"""Configuration tables: the JSON files below `config/` that RocketMQ and orbitmq both read and write.

RocketMQ writes them with fastjson, whose output is not always JSON: maps with integer keys come unquoted (`{0:5}`).
We read that dialect and write strict JSON with quoted keys, which RocketMQ reads as well.

Rules of this file
1. A reader of a `ConfigFile` sees text keys only, whatever quoting the writer used.
2. Saving is atomic and durable, and the previous content stays in `<name>.bak`.
3. A table that cannot be read is an error, never an empty table: starting empty would forget topics and progress.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from orbitmq.errors import ProtocolError, StoreDamagedError
from orbitmq.limits.store import TABLE_PIECE_PAUSE_S
from orbitmq.protocol.remoting import fastjson

if TYPE_CHECKING:
    from orbitmq.store.files import Files

PIECE_MEMBERS = 128
"""Members of a large map that are encoded at a time."""


_never = threading.Event()


def parse_table(data: bytes) -> dict[str, Any]:
    """The object in one configuration file, strict JSON or fastjson's dialect.

    Raises `ValueError` when the bytes are neither, or hold something else than an object.
    """
    try:
        table = fastjson.loads(data, object_key=_refuse_object_key)
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    if not isinstance(table, dict):
        raise ValueError(f"expected an object, found {type(table).__name__}")
    return table


def _refuse_object_key(members: dict[Any, Any]) -> Hashable:
    raise ValueError("configuration tables have text keys only")


class ConfigFile:
    """One table with its backup.

    `load` prefers the main file and falls back to `<name>.bak`: RocketMQ replaces the main file in steps that leave
    only the backup complete for a moment.
    """

    __slots__ = ("_backup", "_files", "_path")

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._backup = path.with_name(path.name + ".bak")

    @property
    def path(self) -> Path:
        return self._path

    def load(self) -> dict[str, Any] | None:
        """The table; None when neither file exists or both are empty.

        Raises `StoreDamagedError` when a file has content but none of the two can be read.
        """
        problems: list[str] = []
        for path in (self._path, self._backup):
            if not self._files.exists(path):
                continue
            data = self._files.read_bytes(path)
            if not data.strip(b" \t\r\n\0"):
                continue
            try:
                return parse_table(data)
            except ValueError as error:
                problems.append(f"{path}: {error}")
        if problems:
            raise StoreDamagedError(
                f"configuration table cannot be read: {'; '.join(problems)}",
                remedy="restore the file from a backup, or move it and its .bak away to start with an empty table",
            )
        return None

    def save(self, table: object) -> None:
        """Replace the table; durable on return, the previous content kept in `.bak`. Blocks on the disk.

        A long table is made in pieces, with pauses in which another thread gets the interpreter: 0.5 ms at a time.
        """
        self._files.make_dirs(self._path.parent)
        pieces: list[bytes] = []
        for piece in encoded_pieces(table):
            if pieces:
                _never.wait(TABLE_PIECE_PAUSE_S)
            pieces.append(piece)
        self._files.write_atomic(self._path, b"".join(pieces), backup=True)

    @staticmethod
    def encode(table: object) -> bytes:
        """Strict, sorted, indented JSON; integer keys become quoted text."""
        return b"".join(encoded_pieces(table))


def encoded_pieces(table: object) -> Iterator[bytes]:
    """What `encode` answers, with members of large maps `PIECE_MEMBERS` at a time."""
    if not isinstance(table, Mapping) or not any(_is_large(value) for value in table.values()):
        yield _text(table) + b"\n"
        return
    before = b"{\n  "
    for key in sorted(table):
        before += msgspec.json.encode(key) + b": "
        value = table[key]
        if _is_large(value):
            names = sorted(value)
            before += b"{"
            for begin in range(0, len(names), PIECE_MEMBERS):
                members = _text({name: value[name] for name in names[begin : begin + PIECE_MEMBERS]})
                yield before + members[1:-2].replace(b"\n", b"\n  ")
                before = b","
            before = b"\n  }"
        else:
            before += _text(value).replace(b"\n", b"\n  ")
        before += b",\n  "
    yield before.removesuffix(b",\n  ") + b"\n}\n"


def _is_large(value: object) -> bool:
    return isinstance(value, Mapping) and len(value) > PIECE_MEMBERS


def _text(value: object) -> bytes:
    plain = msgspec.to_builtins(value, str_keys=True)
    return msgspec.json.format(msgspec.json.encode(plain, order="sorted"), indent=2)
