"""The name server of a server process: its port, its notices, and what it keeps in files."""

from __future__ import annotations

from pathlib import Path

from orbitmq.deadlines import Deadlines
from orbitmq.nameserver.runtime_config import KeptChanges
from orbitmq.nameserver.server import NameServer
from orbitmq.protocol.java_properties import read_properties
from orbitmq.server.access.named_users import NamedUsers
from orbitmq.server.configuration.kept_changes import DEFAULT_ORIGIN, ValueBeneath
from orbitmq.server.configuration.keys import nameserver_keys
from orbitmq.server.configuration.values import parse
from orbitmq.server.connections.listener import Listener
from orbitmq.server.connections.outbound import Notices
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.store.files import Files


class NameServerRole:
    """The name server and its port."""

    def __init__(self, process: Surroundings) -> None:
        settings = process.settings
        self.deadlines = Deadlines()
        self.users: NamedUsers | None = None
        """Who may change the name server; None: whoever can connect."""
        gate = None
        if settings.access.guards_name_server:
            from orbitmq.access.users_gate import GateRules, UsersGate

            self.users = NamedUsers(settings.access)
            gate = UsersGate(self.users, GateRules(settings.broker.broker_cluster_name), process.attempts)
        self._notices = Notices(process.clock, process.room, process.calling)
        self.server = NameServer(
            settings.nameserver,
            process.clock,
            self.deadlines,
            _KvFile(process.files, settings.kv_config_file),
            notify=self._notices.post,
            kept=KeptChanges(settings.nameserver_changes, self._beneath, self._keep_changes),
            gate=gate,
        )
        self._files, self._settings = process.files, settings
        self.listener = Listener(
            "name server",
            self.server,
            process.turn,
            process.wakeups,
            process.clock,
            settings.listener.limits(),
            room=process.room,
            rules=process.rules,
        )
        self._address = (settings.host, settings.nameserver_port)

    def _keep_changes(self, text: str) -> None:
        """Keep changes made by request for the next start, which must be able to read them: raises ConfigurationError
        for a value that a configuration file could not have."""
        keys = nameserver_keys()
        for name, value in read_properties(text.encode("ascii"), where="request").items():
            key = keys.find(name)
            if key is not None:
                parse(key, value, "request")
        file = self._settings.nameserver_runtime_file
        self._files.make_dirs(file.parent)
        self._files.write_atomic(file, text.encode("ascii"))

    def _beneath(self, name: str) -> ValueBeneath:
        """What counts without a change by request."""
        known = self._settings.beneath_nameserver_changes.get(name)
        origin = self._settings.given.get(name, DEFAULT_ORIGIN)
        return known or ValueBeneath(self._settings.nameserver.texts()[name], origin)

    async def start(self) -> None:
        await self.listener.start(*self._address)

    async def stop(self) -> None:
        await self.listener.stop()
        await self._notices.close()

    async def kill(self) -> None:
        await self.listener.abort()
        await self._notices.close()


class _KvFile:
    """The key-value table's file; content in, content out."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    def load(self) -> bytes | None:
        return self._files.read_bytes(self._path) if self._files.exists(self._path) else None

    def save(self, content: bytes) -> None:
        self._files.make_dirs(self._path.parent)
        self._files.write_atomic(self._path, content)
