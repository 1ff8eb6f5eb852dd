"""One broker of a simulated pair: what it has besides every broker of a simulated network (`networked_broker`) is the role of replication
with its port for slaves, its connection to a master, tickets, epochs and gates.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from tests.property.networked_broker import COPIES_PORT, MAIN_PORT, Machine, NetworkedBroker, Registrar, Shared
from tests.worlds.little_store import SteppedWorker

from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import ManualClock
from orbitmq.replication.kept_state import REPLICATION_FILE
from orbitmq.replication.settings import BrokerKind, ReplicationSettings
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.replication.replication_role import ReplicationRole
from orbitmq.store.config_files import ConfigFile

GROUP_NAME = "broker-a"


class NameServer:
    """What a name server says: which host the master runs on. Every broker asks it."""

    def __init__(self) -> None:
        self.master_host = ""


class _Registrar(Registrar):
    def __init__(self, names: NameServer, settings: ServerSettings) -> None:
        super().__init__(settings)
        self.names = names

    @property
    def master_address(self) -> str:
        return f"{self.names.master_host}:{MAIN_PORT}"

    @property
    def master_ha_address(self) -> str:
        return f"{self.names.master_host}:{COPIES_PORT}"

    def ask_group(self, took: Callable[[dict[int, str] | None], None]) -> None:
        took(None)


class PairBroker(NetworkedBroker):
    """One process."""

    role: ReplicationRole
    machine: PairMachine

    def _made_role(self, process: Surroundings, file: ConfigFile) -> ReplicationRole:
        parts = self._parts(process, file, _Registrar(self.machine.names, process.settings))
        return ReplicationRole(parts, MAIN_PORT, copied=cast(Any, None), tables_changed=lambda: None)

    def _role_workers(self) -> list[SteppedWorker]:
        return [cast(SteppedWorker, self.role._reader), cast(SteppedWorker, self.role._saver)]


class PairMachine(Machine[PairBroker]):
    def __init__(
        self, number: int, clock: ManualClock, shared: Shared, names: NameServer, replication: ReplicationSettings
    ) -> None:
        super().__init__(number, clock, shared)
        self.names, self.replication = names, replication
        self.is_demoted = False
        """Whoever starts it next makes a slave of it."""
        self.settings_say = BrokerKind.SLAVE
        """What its settings made of it when it was started last."""
        self.compared: tuple[object, int] = (None, 0)
        """With which master its log was compared, and up to where."""
        self.was_promoted = False
        """It is the master by a person's command; its settings say otherwise."""
        self.lost_ns = -1
        """When its disk lost something that its reports may have promised."""

    @property
    def leads(self) -> bool:
        return self.process is not None and not self.process.role.is_slave

    @property
    def last_writer(self) -> int:
        """Epoch of who wrote the end of its log; 0 while it does not run. A slave is told of writers before it has what they wrote."""
        if self.process is None:
            return 0
        marks, end = self.process.role._kept.state.epochs.marks, self.process.store.log.end
        return max((mark.epoch for mark in marks if mark.start < end), default=0)

    def start(self, kind: BrokerKind) -> bool:
        """False: it died while it started."""
        self.settings_say = kind
        replication = ReplicationSettings(
            kind=kind,
            batch_bytes=self.replication.batch_bytes,
            timeout_ms=self.replication.timeout_ms,
            refuses=self.replication.refuses and kind is BrokerKind.SYNC_MASTER,
            heartbeat_ms=self.replication.heartbeat_ms,
            silence_ms=self.replication.silence_ms,
        )
        settings = ServerSettings(
            data=self.root,
            host=self.host,
            broker=BrokerSettings(broker_name=GROUP_NAME, broker_id=self.number + 1 if kind is BrokerKind.SLAVE else 0),
            replication=replication,
        )
        if not self._started(settings):
            return False
        self.is_demoted = False
        return True

    def _made_process(self, settings: ServerSettings) -> PairBroker:
        if self.is_demoted:
            self._forget_promotion()
        return PairBroker(self, settings)

    def _forget_promotion(self) -> None:
        """As the log says how."""
        file = ConfigFile(self.files, self.root / "config" / REPLICATION_FILE)
        table = file.load()
        if isinstance(table, dict) and (table.pop("promoted", None) or table.pop("demoted", None)):
            self.files.write_atomic(file.path, json.dumps(table).encode())

    def empty(self) -> None:
        """An operator has this broker copy its master anew."""
        super().empty()
        self.is_demoted = True  # that a command made it a slave went with the directory: its settings have to say so
