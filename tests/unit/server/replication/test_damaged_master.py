"""A master whose log is damaged, and a slave that begins with nothing. Both run in this process."""

from __future__ import annotations

from pathlib import Path

from tests.unit.server.replication.test_replica_watching import free_port, master, slave, until

from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.store.message import NewMessage

MESSAGES = 2_000


def damage(log: Path, position: int) -> None:
    """A byte in the body of a record of the newest file."""
    newest = max(log.iterdir())
    data = bytearray(newest.read_bytes())
    data[position - int(newest.name) + 200] ^= 1
    newest.write_bytes(data)


async def test_a_slave_gets_all_that_comes_before_the_damage_on_one_connection(tmp_path: Path) -> None:
    """While it still reports what it has, which nobody hears any more."""
    port = free_port()
    async with master(tmp_path, port, "ASYNC_MASTER") as one:
        for _ in range(MESSAGES):
            placed = one.broker.store.append(NewMessage("orders", 0, b"x" * 1_000, b""))
        one.broker.store.commit()
    damage(tmp_path / "master" / "commitlog", placed.physical_offset)
    async with master(tmp_path, port, "ASYNC_MASTER") as one, slave(tmp_path, port) as two:
        ends, log = one.broker.replication.port.ends, two.broker.store.log
        await until(lambda: ends[LinkEnd.LOG_UNREADABLE] == 2 or log.written_end == placed.physical_offset)
        assert (log.written_end, ends[LinkEnd.LOG_UNREADABLE]) == (placed.physical_offset, 1)
