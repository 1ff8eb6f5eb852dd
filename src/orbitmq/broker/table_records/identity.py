"""Which store this is: a random id, made once, that goes where the log goes. Two stores with one id are copies of one log.

It is a record of the log, and stands in the file `orbitmq.id` of the directory, for those who look before the log is read. The record is
the first one of tables, and says whether those that follow it say everything yet.

Rules of this file
1. The log has the last word. The file is written anew where it says something else, and that is reported.
2. An id that nobody was told may change: it counts from its record on.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from orbitmq.broker.table_records.changes import KeyChanges
from orbitmq.protocol.remoting.bodies import DataVersion

if TYPE_CHECKING:
    from orbitmq.store.files import Files

logger = logging.getLogger("orbitmq.broker")

IDENTITY_FILE: Final = "orbitmq.id"
ID_BYTES: Final = 16
UNSAID: Final = "unsaid"
"""Key that has a value while the tables are recorded for the first time."""

_KEY: Final = "identity"


class StoreIdentity:
    """`text` is the id, 32 hexadecimal digits."""

    record_name: ClassVar[str] = "store"
    is_gathered: ClassVar[bool] = False

    def __init__(self, files: Files, root: Path, random_bytes: Callable[[int], bytes] = os.urandom) -> None:
        """Reads the file. Raises OSError."""
        self._files = files
        self._path = root / IDENTITY_FILE
        self._saved = read_identity(files, self._path)
        self.text = self._saved or random_bytes(ID_BYTES).hex()
        self.is_unsaid = False
        """The tables are not all in the log yet, as far as it says."""
        self.version = DataVersion()
        self.changes = KeyChanges()

    def save(self) -> None:
        """Write the file where it does not say so; durable on return. Raises OSError. On any thread."""
        text = self.text
        if self._saved != text:
            self._files.write_atomic(self._path, text.encode() + b"\n")
            self._saved = text

    def recorded_keys(self) -> Iterable[str]:
        return (_KEY, UNSAID) if self.is_unsaid else (_KEY,)

    def recorded_value(self, key: str) -> bytes | None:
        if key == UNSAID:
            return b"true" if self.is_unsaid else None
        return msgspec.json.encode(self.text) if key == _KEY else None

    def say(self, *, is_unsaid: bool) -> None:
        self.is_unsaid = is_unsaid
        self.changes.note(UNSAID)

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        if UNSAID in values:
            self.is_unsaid = values[UNSAID] is not None
        value = values.get(_KEY)
        if value is not None:
            text = msgspec.json.decode(value, type=str)
            if self._saved is not None and text != self._saved:
                logger.warning(
                    "%s named another store (%s) than its log does (%s): the log has the last word",
                    self._path,
                    self._saved,
                    text,
                )
            self.text = text

    def differs(self, key: str, value: bytes | None) -> bool:
        return self.recorded_value(key) != value

    def is_newer_than(self, version: DataVersion | None) -> bool:
        return False


def read_identity(files: Files, path: Path) -> str | None:
    """The id in a file; None where there is none."""
    try:
        text = files.read_bytes(path).decode("ascii", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    is_id = len(text) == 2 * ID_BYTES and all(character in "0123456789abcdef" for character in text)
    if not is_id:
        logger.warning("%s holds no id of a store: it is written anew", path)
    return text if is_id else None
