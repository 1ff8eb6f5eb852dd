"""One member of a simulated group: what it has besides every broker of a simulated network (`networked_broker`) is its part in the group,
with its driver, links, port for members, and a client of the engine.
"""

from __future__ import annotations

from typing import cast
from unittest import mock

import msgspec
from tests.property.networked_broker import Machine, NetworkedBroker, Registrar, Shared
from tests.worlds.little_store import SteppedWorker
from tests.worlds.simulated_engine import SimulatedEngine

from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import ManualClock
from orbitmq.limits.group import GROUP_DISK_WAIT_MS
from orbitmq.replication.engine_address import EngineAddress, EngineEndpoint
from orbitmq.replication.settings import ReplicationAck, ReplicationSettings
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.server.process.surroundings import Surroundings
from orbitmq.server.replication.group import broker_member
from orbitmq.server.replication.group.broker_member import BrokerMember
from orbitmq.server.replication.group.group_role import GroupRole
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.settings import StoreSettings

GROUP_NAME = "trio"
NAMES = ("a", "b", "c", "d", "e")
ADDRESS = EngineAddress(endpoints=(EngineEndpoint("10.0.1.1", 2_379),))


class MemberBroker(NetworkedBroker):
    """One process."""

    role: GroupRole
    machine: MemberMachine

    def _store_settings(self) -> StoreSettings:
        """As `load_settings` makes them for a member."""
        return msgspec.structs.replace(
            super()._store_settings(), confirms_tail=False, sync_flush_timeout_ms=GROUP_DISK_WAIT_MS
        )

    def _made_role(self, process: Surroundings, file: ConfigFile) -> GroupRole:
        with mock.patch.object(broker_member, "opened_engine", return_value=self.machine.engine.client(self.loop)):
            role = GroupRole(self._parts(process, file, Registrar(process.settings)))
        role.changes.takes_over = self.broker.core.survivors.take_over
        role.changes.goes_on = self.broker.core.survivors.expect_nobody
        self.broker.rooms.pulls.is_withdrawn = lambda: role.is_outside
        return role

    @property
    def member(self) -> BrokerMember:
        return self.role.member

    def _role_workers(self) -> list[SteppedWorker]:
        return [cast(SteppedWorker, self.member._reader), cast(SteppedWorker, self.member._saver)]


class MemberMachine(Machine[MemberBroker]):
    def __init__(
        self,
        number: int,
        clock: ManualClock,
        shared: Shared,
        engine: SimulatedEngine,
        ack: ReplicationAck,
        batch_bytes: int,
    ) -> None:
        super().__init__(number, clock, shared)
        self.name, self.engine = NAMES[number], engine
        self._replication = ReplicationSettings(
            engine=ADDRESS, replica_name=self.name, ack=ack, batch_bytes=batch_bytes
        )

    def start(self) -> bool:
        """False: it died while it started."""
        broker = BrokerSettings(broker_name=GROUP_NAME)
        return self._started(
            ServerSettings(data=self.root, host=self.host, broker=broker, replication=self._replication)
        )

    def _made_process(self, settings: ServerSettings) -> MemberBroker:
        return MemberBroker(self, settings)

    @property
    def leads(self) -> bool:
        return self.process is not None and self.process.member.duties.leads

    @property
    def is_removed(self) -> bool:
        """Whether it says that the group does not know it any more."""
        return self.process is not None and "removed from the group" in self.process.role.trouble

    # --- as `group_account` sees it -------------------------------------------------------------------------------------

    @property
    def life(self) -> str:
        return str(self.lifetimes)

    @property
    def confirmed(self) -> int:
        assert self.process is not None
        driver = self.process.member.driver
        return self.process.store.confirm_offset if driver is None else driver.replica.confirmed

    @property
    def log_start(self) -> int:
        assert self.process is not None
        return self.process.store.log.start

    @property
    def log_end(self) -> int:
        assert self.process is not None
        return self.process.store.log.written_end

    @property
    def stopped(self) -> str:
        """Why it takes part no more, and a person has to look; empty where it does, or is down."""
        if self.process is None:
            return ""
        driver = self.process.member.driver
        return self.process.member._not_of_group or ("" if driver is None else driver.stopped)
