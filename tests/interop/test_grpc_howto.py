"""The programs that docs/howto/rocketmq-5-clients.md prints, as printed, each with the released client of its language."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import START_LIMIT_S, BrokerUnderTest, Kind
from rig.dispatched import until_routed
from rig.drivers import JVM_FLAGS
from rig.process import bindable
from rig.toolchain import GRPC_CLIENT_VERSION, REPOSITORY, java_build

import orbitmq

PAGE = REPOSITORY / "docs" / "howto" / "rocketmq-5-clients.md"
PRINTED = "localhost:8081"
DELAY_S, LATE_S, LIMIT_S = 10.0, 10.0, 180


def java(program: Path) -> list[str | Path]:
    build = java_build(GRPC_CLIENT_VERSION)
    return [build.java, *JVM_FLAGS, f"-Duser.home={program.parent}", "-cp", build.classpath, program]


PROGRAMS = [pytest.param("OrderCancel.java", java, marks=pytest.mark.java, id="java")]
"""The file that a reader saves a program in, and what runs it."""


@pytest.mark.parametrize(("file", "command"), PROGRAMS)
def test_the_printed_program_cancels_what_is_unpaid(
    file: str,
    command: Callable[[Path], list[str | Path]],
    brokers: Callable[..., BrokerUnderTest],
    tmp_path: Path,
    available: Callable[[Callable[[], object]], None],
) -> None:
    program = tmp_path / "program" / file
    program.parent.mkdir()
    available(lambda: command(program))
    broker = brokers(Kind.ORBITMQ, "server")
    grpc_port = broker.nameserver_port + 2  # free, as those of name server and broker
    (serve,) = broker.roles
    serve.settings["grpcServerPort"] = str(grpc_port)  # type: ignore[attr-defined]
    broker.start()
    ends = time.monotonic() + START_LIMIT_S
    while bindable(grpc_port):
        assert time.monotonic() < ends, "nobody serves gRPC"
        time.sleep(0.05)
    asyncio.run(make_topic(broker.name_server))
    (text,) = re.findall(rf"^```\w+ {re.escape(file)}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert text.count(PRINTED) == 1
    program.write_text(text.replace(PRINTED, f"localhost:{grpc_port}"))
    with (tmp_path / "errors").open("w") as errors:
        running = subprocess.Popen(
            [str(word) for word in command(program)],
            stdout=subprocess.PIPE, stderr=errors, text=True, cwd=program.parent,
            env={**os.environ, "HOME": str(program.parent)},
        )  # fmt: skip
        watchdog = threading.Timer(LIMIT_S, running.kill)
        watchdog.start()
        try:
            assert running.stdout is not None
            printed = iter(running.stdout.readline, "")
            assert "order-43 is paid\n" in printed, (tmp_path / "errors").read_text()
            begun = time.monotonic()
            assert "cancel order-42\n" in printed, (tmp_path / "errors").read_text()
            assert DELAY_S - 3 < time.monotonic() - begun < DELAY_S + LATE_S
        finally:  # its client closes within half a minute, which nobody waits for
            watchdog.cancel()
            running.kill()
            running.wait()
            running.stdout.close()


async def make_topic(name_server: str) -> None:
    async with orbitmq.connect(name_server) as mq:
        await mq.admin.create_topic("Orders", attributes={"message.type": "DELAY"})
        await until_routed(mq, "Orders")
