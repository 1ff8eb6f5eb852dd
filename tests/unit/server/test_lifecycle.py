"""The server process put together: what starts, what is undone after a failure, what is told."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tests.worlds.faults import Call, RecordingFiles
from tests.worlds.listening_ports import ports_in_a_row

from orbitmq.clock import SystemClock
from orbitmq.errors import PortTakenError, StoreDamagedError, StoreError, StoreLockedError
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.server.configuration.settings import Overrides, Role, ServerSettings, load_settings
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.store.files import OsFiles
from orbitmq.store.message import NewMessage

SMALL = ("mappedFileSizeCommitLog=1048576", "maxIndexNum=2000", "maxHashSlotNum=500", "grpcServerPort=0")


def settings_of(
    data: Path, port: int, *flags: str, name_port: int = 0, roles: tuple[Role, ...] = tuple(Role)
) -> ServerSettings:
    small = SMALL if Role.BROKER in roles else ()
    overrides = Overrides(data=data, host="127.0.0.1", nameserver_port=name_port, broker_port=port)
    return load_settings(roles=roles, flags=[*small, *flags], overrides=overrides)


def port_with_second() -> int:
    """A free broker port, with the one two below free as well."""
    return ports_in_a_row(3)[-1]


async def test_both_roles_serve_and_stop(tmp_path: Path) -> None:
    port = port_with_second()
    process = ServerProcess(settings_of(tmp_path / "data", port))
    await process.start()
    assert process.summary().startswith("orbitmq serves name server 127.0.0.1:")
    assert f"broker broker-a 127.0.0.1:{port}" in process.summary()
    facts = process.facts()
    assert facts["orbitmqConnections"] == "1", "the broker's own, to the name server"
    assert all(value.isdigit() for value in facts.values())
    await process.stop()
    assert not (tmp_path / "data" / "abort").exists()


async def test_a_name_server_alone_has_no_store(tmp_path: Path) -> None:
    process = ServerProcess(settings_of(tmp_path / "data", 0, roles=(Role.NAMESERVER,)))
    await process.start()
    assert "broker" not in process.summary()
    await process.stop()
    assert not (tmp_path / "data" / "commitlog").exists()


async def test_a_taken_port_undoes_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = ServerProcess(settings_of(tmp_path / "data", port))
        with pytest.raises(PortTakenError, match=str(port)):
            await process.start()
    assert not (tmp_path / "data" / "abort").exists(), "the store was closed in order"
    port = port_with_second()
    again = ServerProcess(settings_of(tmp_path / "data", port))
    await again.start()  # neither the lock nor the name server's port is still held
    await again.stop()


async def test_a_damaged_table_undoes_the_start(tmp_path: Path) -> None:
    config = tmp_path / "data" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text('{"half')
    port = port_with_second()
    with pytest.raises(StoreDamagedError, match=r"topics\.json"):
        await ServerProcess(settings_of(tmp_path / "data", port)).start()
    (config / "topics.json").unlink()
    again = ServerProcess(settings_of(tmp_path / "data", port))
    await again.start()
    await again.stop()


async def test_the_store_belongs_to_one_process_only(tmp_path: Path) -> None:
    # Locks of one process do not exclude each other: another one holds it here.
    import subprocess
    import sys

    (tmp_path / "data").mkdir()
    hold = (
        "import sys; from pathlib import Path; from orbitmq.store.files import OsFiles; "
        "lock = OsFiles().lock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(  # noqa: ASYNC220 - it is started and waited for before anything else runs
        [sys.executable, "-c", hold, str(tmp_path / "data" / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    try:
        port = port_with_second()
        with pytest.raises(StoreLockedError):
            await ServerProcess(settings_of(tmp_path / "data", port)).start()
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


async def test_what_cannot_be_saved_at_the_end_is_told_after_everything_is_closed(tmp_path: Path) -> None:
    failing = False

    def plan(call: Call) -> OSError | None:
        return (
            OSError(28, "No space left on device", str(call.path)) if failing and "config" in str(call.path) else None
        )

    (tmp_path / "data").mkdir()
    port = port_with_second()
    files = RecordingFiles(OsFiles(), tmp_path / "data", plan=plan)
    process = ServerProcess(settings_of(tmp_path / "data", port), files=files)
    await process.start()
    assert process.broker is not None
    broker = process.broker.broker
    failing = True
    broker.topics.ensure_dead_letter("readers")
    with pytest.raises(StoreError, match="could not be saved"):
        await process.stop()
    failing = False
    again = ServerProcess(settings_of(tmp_path / "data", port))
    await again.start()
    await again.stop()


async def test_a_name_server_keeps_what_it_was_told(tmp_path: Path) -> None:
    """Changes by request survive a restart, and none is kept that the next start could not read."""

    def ask(process: ServerProcess, body: bytes) -> int:
        assert process.nameserver is not None
        answer = process.nameserver.server.handle(request(RequestCode.UPDATE_NAMESRV_CONFIG, None, body), NoPeer())  # type: ignore[arg-type]
        assert answer is not None
        return answer.code

    def interval(process: ServerProcess) -> int:
        assert process.nameserver is not None
        return process.nameserver.server.config.scan_not_active_broker_interval

    for value in (6_000, 7_000):
        process = ServerProcess(settings_of(tmp_path / "data", 0, roles=(Role.NAMESERVER,)))
        await process.start()
        assert interval(process) == (5_000 if value == 6_000 else 6_000)
        assert ask(process, b"scanNotActiveBrokerInterval=%d\n" % value) == ResponseCode.SUCCESS
        assert ask(process, b"scanNotActiveBrokerInterval=2147483647\n") == ResponseCode.SYSTEM_ERROR
        assert interval(process) == value
        await process.stop()


class NoPeer:
    """A connection that nothing is sent to."""

    address = ("127.0.0.1", 1)

    def __init__(self) -> None:
        self.attachments: dict[object, object] = {}


async def test_port_0_takes_a_free_port_and_announces_it(tmp_path: Path) -> None:
    process = ServerProcess(settings_of(tmp_path / "data", 0))
    await process.start()
    assert process.broker is not None
    port = process.broker.port
    assert port > 0
    assert process.broker.listener.address == ("127.0.0.1", port)
    assert process.broker.identity.address == f"127.0.0.1:{port}"
    assert process.broker.registrar.registered != {}
    await process.stop()


async def test_a_server_inside_a_program_may_leave_the_second_port_alone(tmp_path: Path) -> None:
    process = ServerProcess(settings_of(tmp_path / "data", 0), second_port=False)
    await process.start()
    assert process.broker is not None
    with pytest.raises(RuntimeError, match="not listening"):
        _ = process.broker.second.address
    await process.stop()


async def test_a_killed_server_saves_nothing_and_gives_everything_back(tmp_path: Path) -> None:
    process = ServerProcess(settings_of(tmp_path / "data", 0))
    await process.start()
    assert process.broker is not None
    port = process.broker.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    process.broker.broker.topics.ensure_dead_letter("readers")
    await process.kill()
    assert await reader.read() == b"", "the connection broke"
    writer.close()
    assert (tmp_path / "data" / "abort").exists(), "as after a crash"
    assert "readers" not in (tmp_path / "data" / "config" / "topics.json").read_text(), (
        "it waited for the end of a turn"
    )
    again = ServerProcess(settings_of(tmp_path / "data", port))
    await again.start()  # neither the lock nor the port is still held
    await again.stop()


async def test_a_moved_clock_is_looked_at_at_once(tmp_path: Path) -> None:
    class Calendar(SystemClock):
        def now_ms(self) -> int:
            return now_ms

        def now_ns(self) -> int:
            return now_ms * 1_000_000

    now_ms = 1_700_000_000_000
    process = ServerProcess(settings_of(tmp_path / "data", 0), clock=Calendar())
    await process.start()
    assert process.broker is not None
    store, release = process.broker.store, process.broker.release
    store.append(NewMessage("SCHEDULE_TOPIC_XXXX", 0, b"x", encode_properties(DELAYED), tags_code=now_ms + 60_000))
    store.commit()
    assert release.next_due_ms == now_ms + 60_000
    now_ms += 60_000
    process.clock_moved()
    for _ in range(20):
        await asyncio.sleep(0)
    assert store.max_offset("T", 0) == 1
    assert release.pending_count == 0
    assert not release.is_releasing
    await process.stop()


DELAYED = {"REAL_TOPIC": "T", "REAL_QID": "0", "DELAY": "1"}
