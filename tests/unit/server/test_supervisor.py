"""What a supervisor hears, over the sockets that systemd has: one with a path, and an abstract one."""

from __future__ import annotations

import io
import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.server.process.signals import ProcessSignals
from orbitmq.server.process.supervisor import Supervisor
from orbitmq.telemetry.logs import BoundedHandler


@pytest.fixture(params=["path", "abstract"])
def hearing(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, str]]:
    """A supervisor's socket, and the text of NOTIFY_SOCKET."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hearer:
        hearer.setblocking(False)
        if request.param == "path":
            hearer.bind(f"{folder}/notify")  # the folders of tests are too long for an address
            yield hearer, f"{folder}/notify"
        else:
            hearer.bind(f"\0orbitmq-test-{os.getpid()}")
            yield hearer, f"@orbitmq-test-{os.getpid()}"


def heard(hearer: socket.socket) -> list[str]:
    """All that has come."""
    found = []
    while True:
        try:
            found.append(hearer.recv(4096).decode())
        except BlockingIOError:
            return found


def test_a_life_is_told(hearing: tuple[socket.socket, str]) -> None:
    hearer, address = hearing
    environment, clock = {"NOTIFY_SOCKET": address, "HOME": "/"}, ManualClock()
    supervisor = Supervisor(environment, clock)
    assert environment == {"HOME": "/"}, "a process that this one starts does not speak for it"
    supervisor.ready("orbitmq serves broker broker-a")
    clock.advance(1_500)
    supervisor.reloading()
    supervisor.reloaded()
    supervisor.stopping("SIGTERM")
    assert heard(hearer) == [
        "READY=1\nSTATUS=orbitmq serves broker broker-a",
        "RELOADING=1\nMONOTONIC_USEC=1500000",
        "READY=1",
        "STOPPING=1\nSTATUS=stopping: SIGTERM",
    ]


def test_a_reload_says_ready_neither_before_the_start_is_done_nor_in_a_stop(hearing: tuple[socket.socket, str]) -> None:
    hearer, address = hearing
    supervisor = Supervisor({"NOTIFY_SOCKET": address}, ManualClock())
    supervisor.reloading()
    supervisor.reloaded()
    assert heard(hearer) == []
    supervisor.ready("serves")
    supervisor.reloading()
    supervisor.stopping("SIGTERM")
    supervisor.reloaded()
    assert heard(hearer)[-1].startswith("STOPPING=1")


async def test_a_reload_by_signal_is_told(hearing: tuple[socket.socket, str]) -> None:
    hearer, address = hearing
    supervisor = Supervisor({"NOTIFY_SOCKET": address}, ManualClock())
    supervisor.ready("serves")
    signals = ProcessSignals(BoundedHandler(io.StringIO()), supervisor)
    signals.hang_up()
    assert signals._reloading is not None
    await signals._reloading
    assert [text.partition("\n")[0] for text in heard(hearer)] == ["READY=1", "RELOADING=1", "READY=1"]


@pytest.mark.parametrize("address", ["", "/nobody/is/here", "@nobody-is-here", "vsock:2:1234", "/" + 200 * "x"])
def test_a_supervisor_that_hears_nothing_ends_nothing(address: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Supervisor({"NOTIFY_SOCKET": address} if address else {}, ManualClock()).ready("serves")
    assert [f"NOTIFY_SOCKET = {address} does not hear READY=1" in text for text in caplog.messages] == [True] * bool(
        address
    )


def test_one_that_does_not_read_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    name = f"orbitmq-deaf-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        deaf.bind(f"\0{name}")
        supervisor = Supervisor({"NOTIFY_SOCKET": f"@{name}"}, ManualClock())
        most = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 10
        for _ in range(most):
            supervisor.ready("serves")
    assert "does not hear READY=1: [Errno 11]" in caplog.text
