"""Administration of running brokers and name servers: figures, settings, write permission, the table of keys and values.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/administration/broker_admin.py: change that file and run `make generate`.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.client._async.administration import broker_admin as source
from orbitmq.client._async.administration.broker_admin import AtNameServer
from orbitmq.client._sync.administration.admin_calls import AdminCalls
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.protocol.remoting.bodies import BrokerStatsData, HaRuntimeInfo
from orbitmq.protocol.remoting.replication_bodies import DemoteAnswer, DemoteRequest, ReseedAnswer


class BrokerAdmin(AdminCalls):
    """Calls about brokers and name servers."""

    def __init__(self, twin: source.BrokerAdmin, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.BrokerAdmin = twin

    def broker_runtime(self, address: str) -> dict[str, str]:
        """Figures of a running broker by name, as text."""
        return self._loop.run(self._twin.broker_runtime(address))

    def broker_ha_status(self, address: str) -> HaRuntimeInfo:
        """What a broker tells of replication: a master of each slave, a slave of its master. Refused by RocketMQ before 5.0."""
        return self._loop.run(self._twin.broker_ha_status(address))

    def promote_slave(
        self,
        address: str,
        *,
        synchronous: bool = False,
        although_master_lives: bool = False,
        although_behind: bool = False,
    ) -> int:
        """Make the slave at this address the master of its group, `synchronous` or not; where its log ended then. While it follows a master
        that lives, or another slave of its group has more of the log, it refuses, unless told otherwise: what the other one has, or takes
        from then on, is lost. orbitmq's brokers only.
        """
        return self._loop.run(
            self._twin.promote_slave(
                address,
                synchronous=synchronous,
                although_master_lives=although_master_lives,
                although_behind=although_behind,
            )
        )

    def demote_master(self, address: str, wanted: DemoteRequest) -> DemoteAnswer:
        """Make the master at this address a slave, which takes nothing any more; with `wanted.hands_over` a slave of it the master. While
        no slave has its log, or the slave does not become master, it refuses and leads on. orbitmq's brokers only.
        """
        return self._loop.run(self._twin.demote_master(address, wanted))

    def reseed_slave(self, address: str, *, although_parted: bool = False) -> ReseedAnswer:
        """Have the slave at this address put its store aside and copy its master anew: at once, or at its next start. Where no master
        answers, or the slave has what its master has not, it refuses, the second unless told otherwise. orbitmq's brokers only.
        """
        return self._loop.run(self._twin.reseed_slave(address, although_parted=although_parted))

    def forget_slave(self, address: str, slave_id: int) -> bool:
        """Let another directory come with this id to the master at this address; whether the id was known. orbitmq's brokers only."""
        return self._loop.run(self._twin.forget_slave(address, slave_id))

    def broker_config(self, address: str) -> dict[str, str]:
        """Settings of a running broker by name, as text."""
        return self._loop.run(self._twin.broker_config(address))

    def update_broker_config(self, address: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker; it keeps them over a restart. A refused key changes nothing."""
        self._loop.run(self._twin.update_broker_config(address, changes))

    def broker_stats(self, address: str, name: str, key: str) -> BrokerStatsData | None:
        """A broker's counter over the last minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic; None without any traffic."""
        return self._loop.run(self._twin.broker_stats(address, name, key))

    def broker_at_name_servers(self, broker: str) -> dict[str, AtNameServer | None]:
        """What every name server tells of a broker (by name), as its own topic shows; None for one that does not answer."""
        return self._loop.run(self._twin.broker_at_name_servers(broker))

    def wipe_write_permission(self, broker: str) -> int:
        """Take the topics of a broker (by name) out of the routes for sending, on every name server; how many there were."""
        return self._loop.run(self._twin.wipe_write_permission(broker))

    def add_write_permission(self, broker: str) -> int:
        """Undo `wipe_write_permission`; how many topics can be sent to again."""
        return self._loop.run(self._twin.add_write_permission(broker))

    def name_server_config(self) -> dict[str, dict[str, str]]:
        """Settings of every name server by its address."""
        return self._loop.run(self._twin.name_server_config())

    def update_name_server_config(self, changes: Mapping[str, str], address: str | None = None) -> None:
        """Change settings of every name server, or of the one at `address`."""
        self._loop.run(self._twin.update_name_server_config(changes, address))

    def put_value(self, namespace: str, key: str, value: str) -> None:
        """Keep a value in the table of every name server."""
        self._loop.run(self._twin.put_value(namespace, key, value))

    def get_value(self, namespace: str, key: str) -> str | None:
        """A value of the name servers' table, or None."""
        return self._loop.run(self._twin.get_value(namespace, key))

    def delete_value(self, namespace: str, key: str) -> None:
        """Remove a value from the table of every name server. One that is not there is no error."""
        self._loop.run(self._twin.delete_value(namespace, key))

    def values(self, namespace: str) -> dict[str, str]:
        """All values of a namespace of the name servers' table."""
        return self._loop.run(self._twin.values(namespace))
