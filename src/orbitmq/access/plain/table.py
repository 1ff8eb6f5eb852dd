"""The accounts of all files, as they are asked for.

Rules of this file
1. An access key belongs to the first file that names it, and there to its first account; a repetition has no effect and is warned
   about. Files come in an order that does not depend on the file system.

(RocketMQ broker: ACL in 4.x.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from orbitmq.access.evaluation import Permissions
from orbitmq.access.plain.accounts import PlainAccount, PlainFile
from orbitmq.access.plain.addresses import Fields, address_fields
from orbitmq.access.plain.changes import Tree
from orbitmq.access.users import User


class PlainTable:
    """What the files of accounts say together. It never changes: files that changed make a new one."""

    def __init__(self, files: Sequence[PlainFile]) -> None:
        """`files` in the order in which they count: those of the folder by path, then the default file."""
        self.files = tuple(files)
        self.accounts: dict[str, PlainAccount] = {}
        self.users: dict[str, User] = {}
        """The accounts as handlers see callers."""

        self.file_of: dict[str, str] = {}
        """The file of each access key."""

        self.warnings: list[str] = []
        self._white_addresses = tuple(pattern for file in files for pattern in file.white_addresses)
        for file in files:
            self.warnings += (f"{file.name}: {warning}" for warning in file.warnings)
            for account in file.accounts:
                key = account.access_key
                if key in self.accounts:
                    self.warnings.append(
                        f"{file.name}: access key {key!r} stands in {self.file_of[key]} already, where it counts; this one has no effect"
                    )
                    continue
                self.accounts[key] = account
                self.file_of[key] = file.name
                self.users[key] = account.user

    def lets_in(self, fields: Fields) -> bool:
        """Whether requests from an address are never asked for a signature."""
        return any(pattern.matches(fields) for pattern in self._white_addresses)


class AccountFiles(Protocol):
    """The files of accounts, as a server keeps them."""

    table: PlainTable
    """What they say, as last read."""

    default_file: str
    """Where new accounts are written."""

    def change(self, file: str, change: Callable[[Tree], Tree]) -> PlainTable:
        """Replace a file by what `change` makes of it, and read all files again: the result is not in force yet. Blocks; runs on any
        thread, one at a time. Raises ValueError for a result that cannot be used, OSError, OrbitError; then no file is changed."""
        ...


class AccountUsers:
    """The accounts as a `UserSource` for a port that only shows something: whoever has one may look, as with requests that only look."""

    def __init__(self, files: AccountFiles) -> None:
        self._files = files

    def user(self, name: str) -> User | None:
        return self._files.table.users.get(name)

    def permissions(self, name: str) -> Permissions | None:
        """None: accounts have no policies."""
        return None

    def lets_in(self, address: str) -> bool:
        """Whether the global white list has an address."""
        return self._files.table.lets_in(address_fields(address))
