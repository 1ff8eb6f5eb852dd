"""The table of users on the disk: `config/orbitmq-access.json`, with one line for each user.

    {"dataVersion": {...}, "users": {
    "alice": {"password": ..., "userType": "Normal", "userStatus": "enable", "custom": [entries], "default": [entries]},
    ...}}

Rules of this file
1. Nobody but the server's user of the machine can read any of it at any time; with keys the file is encrypted (`access.sealing`).
2. It is replaced whole, and no older content stays beside it: a deleted user must not come back with a backup, nor a password.
3. A file that cannot be read is an error and never an empty table: a start would let in whom the settings name, and forget the rest.
4. A start writes it anew, so a table that lay open is sealed, and one that was copied with another mode is private again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from orbitmq.access.policies import Acl
from orbitmq.access.sealing import NONCE_BYTES, is_sealed, seal, unseal
from orbitmq.access.table import AccessTable
from orbitmq.access.users import ACCESS_FILE, User
from orbitmq.broker.table_records.changes import RecordedSavedTable
from orbitmq.broker.table_saving import TableFile, read_table
from orbitmq.clock import Clock
from orbitmq.errors import StoreDamagedError
from orbitmq.protocol.remoting.bodies import DataVersion
from orbitmq.store.config_files import parse_table
from orbitmq.store.files import replace_content

if TYPE_CHECKING:
    from orbitmq.store.files import Files


class AccessFile:
    """The file. `keys`: it is sealed with the first and opened with any; none: it is not sealed."""

    def __init__(
        self,
        files: Files,
        path: Path,
        keys: Sequence[bytes] = (),
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._files = files
        self._path = path
        self._keys = keys
        self._random_bytes = random_bytes

    def load(self) -> dict[str, Any] | None:
        """The document; None where there is no file. Raises `StoreDamagedError`, OSError."""
        try:
            content = self._files.read_bytes(self._path)
        except (FileNotFoundError, NotADirectoryError):
            if self._path.is_symlink():
                raise StoreDamagedError(
                    f"{self._path} leads to a file that is not there", remedy="mount or restore what it leads to"
                ) from None
            return None
        try:
            document = _parsed(content)
            if not is_sealed(document):
                return document
            if not self._keys:
                raise StoreDamagedError(
                    f"the users in {self._path} are encrypted", remedy="name the file of their key in accessKeyFile"
                )
            return _parsed(unseal(document, self._keys))
        except ValueError as error:
            raise StoreDamagedError(
                f"the users in {self._path} cannot be read: {error}",
                remedy="restore the file and the key of accessKeyFile from a backup; only if there is none, move the file away: "
                "then there are no users but those that the settings name",
            ) from error

    @property
    def seals(self) -> bool:
        return bool(self._keys)

    def sealed(self, content: bytes) -> bytes:
        """JSON that tells nothing but its length without the key."""
        return msgspec.json.encode(seal(content, self._keys[0], self._random_bytes(NONCE_BYTES)))

    def unsealed(self, content: bytes) -> bytes:
        """What was sealed. ValueError where no key opens it."""
        return unseal(_parsed(content), self._keys)

    def save(self, document: Mapping[str, object]) -> None:
        """Replace the file; durable on return. Blocks."""
        content = msgspec.json.encode(document, order="sorted")
        if self._keys:
            content = self.sealed(content)
        self._files.make_dirs(self._path.parent)
        replace_content(self._files, self._path, content + b"\n", private=True)


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        return parse_table(content)
    except ValueError:
        raise ValueError("it is no JSON object") from None  # the text about JSON quotes it


class _AccessDocument(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    data_version: DataVersion
    users: dict[str, object]


class SavedAccess(RecordedSavedTable):
    """The users of a server and where they are kept. `table` is changed by its own methods; who does so calls `changed`.

    They are recorded in the log sealed, or not at all: many who may read a log may not know passwords."""

    record_name: ClassVar[str] = "users"

    def __init__(self, file: TableFile, clock: Clock, sealing: AccessFile | None = None) -> None:
        """`sealing`: seals and opens records; without one there are none."""
        super().__init__(file, clock)
        self.table: Final = AccessTable()
        self._sealing = sealing if sealing is not None and sealing.seals else None

    def load(self, initial: Iterable[User] = ()) -> list[User]:
        """Read the file, and create those of the `initial` users that are missing; answers these. The table is then to be saved.

        Raises `StoreDamagedError`, OSError.
        """
        document = self._file.load()
        if document is not None:
            saved = read_table(document, _AccessDocument, ACCESS_FILE, "a table of users")
            try:
                self.table.load(saved.users)
            except ValueError as error:
                raise StoreDamagedError(
                    f"{ACCESS_FILE} has something that is no user: {error}",
                    remedy="repair it, restore it from a backup, or start the version that wrote it",
                ) from error
            self.version = saved.data_version
        created = [user for user in initial if self.table.create_at_start(user)]
        if created:
            self._changed()
        self.dirty = True
        return created

    def add(self, user: User, acl: Acl) -> bool:
        """A user from elsewhere with its policies, which may be empty; False, and nothing is changed, where one of that name exists."""
        if not self.table.create_at_start(user, acl):
            return False
        self._changed_key(user.name)
        return True

    def changed(self, name: str) -> None:
        """What the table says of a user was changed."""
        self._changed_key(name)

    @property
    def is_recorded(self) -> bool:
        return self._sealing is not None

    def recorded_keys(self) -> Iterable[str]:
        return [user.name for user in self.table.users()]

    def recorded_value(self, key: str) -> bytes | None:
        text = self.table.text(key)
        return None if text is None or self._sealing is None else self._sealing.sealed(text)

    def differs(self, key: str, value: bytes | None) -> bool:
        assert self._sealing is not None, "what is not recorded is not compared"
        return self.table.text(key) != (None if value is None else self._sealing.unsealed(value))

    def _take_one(self, key: str, value: bytes | None) -> None:
        assert self._sealing is not None, "what is not recorded is not taken"
        self.table.take(key, None if value is None else self._sealing.unsealed(value))

    def _frozen(self) -> Callable[[], Mapping[str, object]]:
        users, version = self.table.frozen(), self.version
        return lambda: {"dataVersion": version, "users": users()}
