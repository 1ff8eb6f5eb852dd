"""What a broker tells of its copies beyond RocketMQ's form: entries of its runtime information (request 28), `orbitmqReplica...`.

    orbitmqReplicaRole                what brokerRole says
    orbitmqReplicaLogEnd              position after the last written byte
    orbitmqReplicaConfirmedEnd        up to there consumers see the log
    orbitmqReplicaTrouble             why a log does not grow, a slave does not follow, what a master lacks, where the log is damaged; empty
                                      where all is well
    orbitmqReplicaDamagedPlaces       places where the log is damaged that no other copy has mended yet
    orbitmqReplicaMendedBytes         of the log, which came from another copy since the start
    of a master: ...Port              where it listens for slaves; empty where it does not
                 ...CopiesNeeded      slaves that a send waits for
                 ...CopiesCounted     slaves that keep up
                 ...Slaves            JSON: a list of `ReplicaSlave`, those that follow first
                 ...Known             JSON: ids of all slaves that have followed
                 ...Refuses           why no slave may follow now; empty where one may
    of a slave:  ...Master            where it follows, or tries to
                 ...Connected         true or false
                 ...SinceMillis       since when that is so
                 ...LastReadMillis    when something last came; 0 for never

Rules of this file
1. Everything is reckoned when somebody asks; instants are those of the wall clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.clock import Clock
from orbitmq.replication.copies import Copy, CopyState
from orbitmq.server.connections.addresses import endpoint
from orbitmq.units import NS_PER_MS

if TYPE_CHECKING:
    from orbitmq.server.replication.following import Following
    from orbitmq.server.replication.slave_connection import SlaveConnection
    from orbitmq.server.replication.slave_port import SlavePort

PREFIX: Final = "orbitmqReplica"


class ReplicaSlave(msgspec.Struct, frozen=True, rename="camel"):
    """One slave at its master. `behind_millis` is as far as that is remembered: some seconds."""

    slave: str
    """Its id in the group where it gave a ticket, else its address."""
    address: str
    position: int
    behind_bytes: int
    behind_millis: int
    state: str
    """`counted`, `joining`, `behind`, `seeding` or `damaged`; `away` for one that does not follow."""
    why_not: str
    """Why it does not count; empty where it does."""
    main_address: str
    """Where it serves clients; empty where it did not say so."""
    heard_millis: int = 0
    """When one that is away was last heard; 0 for one that follows."""


AWAY: Final = "away"


def slaves_of(port: SlavePort, clock: Clock) -> list[ReplicaSlave]:
    """Those that have said where their logs end, in the order in which they came."""
    copies, now_ns = port.gate.copies, clock.monotonic_ns()
    told = []
    for connection in port.connections:
        copy = connection.copy
        if copy is not None:
            lag = copies.lag(copy.position, now_ns)
            told.append(
                ReplicaSlave(
                    connection.slave,
                    connection.address,
                    copy.position,
                    lag.bytes,
                    lag.ms,
                    copy.state.value,
                    why_not_counted(port, connection, copy),
                    connection.main_address,
                )
            )
    return told


def why_not_counted(port: SlavePort, connection: SlaveConnection, copy: Copy) -> str:
    """Of a slave that follows: empty where it counts."""
    why_not = port.gate.copies.why_not_counted(copy)
    return why_not and (port.away.trouble_of(connection.slave) or why_not)


def away_from(port: SlavePort, clock: Clock) -> list[ReplicaSlave]:
    """Slaves that have followed this process, and do not now."""
    copies, now_ns, now_ms = port.gate.copies, clock.monotonic_ns(), clock.now_ms()
    told = []
    for slave, away in port.away.besides({one.slave for one in port.connections if one.copy is not None}):
        lag, heard_ms = copies.lag(away.position, now_ns), now_ms - (now_ns - away.heard_ns) // NS_PER_MS
        told.append(ReplicaSlave(slave, "", away.position, lag.bytes, lag.ms, AWAY, away.why, away.address, heard_ms))
    return told


def facts_of_master(port: SlavePort, clock: Clock) -> dict[str, str]:
    slaves = slaves_of(port, clock)
    return {
        f"{PREFIX}Port": "" if port.address is None else endpoint(*port.address),
        f"{PREFIX}CopiesNeeded": str(port.gate.copies.rule.needed),
        f"{PREFIX}CopiesCounted": str(sum(slave.state == CopyState.COUNTED.value for slave in slaves)),
        f"{PREFIX}Slaves": msgspec.json.encode([*slaves, *away_from(port, clock)]).decode(),
    }


def facts_of_slave(following: Following, clock: Clock) -> dict[str, str]:
    now_ns, now_ms = clock.monotonic_ns(), clock.now_ms()

    def wall(at_ns: int) -> str:
        return str(now_ms - (now_ns - at_ns) // NS_PER_MS) if at_ns else "0"

    return {
        f"{PREFIX}Master": following.master_address,
        f"{PREFIX}Connected": str(following.is_connected).lower(),
        f"{PREFIX}SinceMillis": wall(following.since_ns),
        f"{PREFIX}LastReadMillis": wall(following.last_read_ns),
    }


def shortage(port: SlavePort) -> str:
    """What sends at a master lack of copies; empty where they lack none."""
    missing = port.gate.copies.missing
    if not missing:
        return ""
    more = "1 more slave has" if missing == 1 else f"{missing} more slaves have"
    if port.gate.copies.refusal is not None:
        return f"sends are refused: {more} to keep up"
    return f"sends are answered with a warning (11 or 12): {more} to keep up"
