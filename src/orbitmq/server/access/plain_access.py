"""Access control of RocketMQ 4 in a server process: the files of accounts, the gate that asks them, and the look at their changes.

Rules of this file
1. Without aclEnable nothing of it exists: no file is looked at, nothing is imported, requests meet no gate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from orbitmq.access.failures import FailedAttempts
from orbitmq.clock import Clock
from orbitmq.errors import ConfigurationError
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.server.process.turn import Wakeups
from orbitmq.store.worker import Worker

if TYPE_CHECKING:
    from orbitmq.access.plain.accounts import PlainAccount
    from orbitmq.access.plain.gate import PlainGate
    from orbitmq.access.plain.table import AccountFiles, AccountUsers
    from orbitmq.server.access.plain_files import PlainWatch


class PlainAccess:
    """`files`, `gate` and `users` are None without aclEnable."""

    def __init__(self, settings: ServerSettings, clock: Clock, attempts: FailedAttempts) -> None:
        """Reads the files. ConfigurationError when they cannot be used."""
        self.files: AccountFiles | None = None
        self.gate: PlainGate | None = None
        self._watched: Callable[[Wakeups, Worker], PlainWatch] | None = None
        self._watch: PlainWatch | None = None
        self.reload: Callable[[], str] | None = None
        """Reads the files now; blocks, on the worker that was given to `watch`."""
        self.users: AccountUsers | None = None
        if not settings.access.plain:
            return
        from orbitmq.access.plain.gate import PlainGate
        from orbitmq.access.plain.table import AccountUsers

        plain_files = _reader("aclEnable")
        files = plain_files.PlainFiles(_folder(settings), clock)
        self._watched = partial(plain_files.PlainWatch, files)
        self.files = files
        self.reload = files.reload
        self.users = AccountUsers(files)
        self.gate = PlainGate(lambda: files.table, settings.broker.broker_cluster_name, attempts)

    def watch(self, wakeups: Wakeups, worker: Worker) -> None:
        """Begin to look at the files from time to time; `worker` is the one that changes them."""
        if self._watched is not None:
            self._watch = self._watched(wakeups, worker)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()


def accounts_to_move(settings: ServerSettings) -> list[PlainAccount]:
    """The accounts that `migrateAuthFromV1Enabled` makes users of. ConfigurationError when their files cannot be used."""
    return list(_reader("migrateAuthFromV1Enabled").read_plain_folder(_folder(settings)).accounts.values())


def _reader(key: str) -> ModuleType:
    """The module that reads the files; ConfigurationError where PyYAML is missing."""
    try:
        from orbitmq.server.access import plain_files
    except ImportError as error:
        raise ConfigurationError(
            f"{key} = true needs PyYAML, which is not installed", remedy="install it: pip install 'orbitmq[acl]'"
        ) from error
    return plain_files


def _folder(settings: ServerSettings) -> Path:
    own = settings.access.plain_folder
    return Path(own).expanduser() if own else settings.data / "conf"
