"""What a broker tells of its copies, in RocketMQ's form (request 907): of each slave at a master, of its connection at a slave.

Rules of this file
1. RocketMQ lists connections. Slaves that are away are listed behind them, by where they serve clients, and why a slave does not count is
   in a member that RocketMQ does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.clock import Clock
from orbitmq.protocol.remoting.bodies import HaClientRuntime, HaConnectionRuntime, HaRuntimeInfo
from orbitmq.replication.copies import Copy, CopyState
from orbitmq.server.replication.replica_facts import away_from, why_not_counted
from orbitmq.store.store import MessageStore
from orbitmq.units import NS_PER_MS

if TYPE_CHECKING:
    from orbitmq.server.replication.following import Following
    from orbitmq.server.replication.slave_connection import SlaveConnection
    from orbitmq.server.replication.slave_port import SlavePort


def status_of_master(port: SlavePort, store: MessageStore) -> HaRuntimeInfo:
    end = store.log.written_end
    slaves = [_slave(port, connection, connection.copy, end) for connection in port.connections if connection.copy]
    away = [
        HaConnectionRuntime(
            addr=one.main_address or one.slave,
            slave_ack_offset=one.position,
            diff=end - one.position,
            transfer_from_where=one.position,
            why_not=one.why_not,
        )
        for one in away_from(port, port.clock)
    ]
    return HaRuntimeInfo(
        master=True,
        master_commit_log_max_offset=end,
        in_sync_slave_nums=sum(one.in_sync for one in slaves),
        ha_connection_info=slaves + away,
    )


def _slave(port: SlavePort, connection: SlaveConnection, copy: Copy, end: int) -> HaConnectionRuntime:
    return HaConnectionRuntime(
        addr=connection.address,
        slave_ack_offset=copy.position,
        diff=end - copy.position,
        in_sync=copy.state is CopyState.COUNTED,
        transferred_byte_in_second=connection.sent.per_second(),
        transfer_from_where=max(connection.link.sent_end, 0),
        why_not=why_not_counted(port, connection, copy),
    )


def status_of_slave(following: Following, store: MessageStore, clock: Clock) -> HaRuntimeInfo:
    """Times are those of the wall clock, 0 where nothing happened."""
    now_ns, now_ms = clock.monotonic_ns(), clock.now_ms()

    def wall(at_ns: int) -> int:
        return now_ms - (now_ns - at_ns) // NS_PER_MS if at_ns else 0

    client = HaClientRuntime(
        master_addr=following.master_address or None,
        transferred_byte_in_second=following.rate.per_second(),
        max_offset=store.log.written_end,
        last_read_timestamp=wall(following.last_read_ns),
        last_write_timestamp=wall(following.last_write_ns),
        master_flush_offset=0,
    )
    return HaRuntimeInfo(
        master=False, master_commit_log_max_offset=store.log.written_end, ha_client_runtime_info=client
    )


def status_alone(store: MessageStore, *, is_slave: bool) -> HaRuntimeInfo:
    """Of one that has not begun to follow or to lead, which may take until another one has been made the master."""
    end = store.log.written_end
    client = HaClientRuntime(max_offset=end) if is_slave else HaClientRuntime()
    return HaRuntimeInfo(master=not is_slave, master_commit_log_max_offset=end, ha_client_runtime_info=client)
