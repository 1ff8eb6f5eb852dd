"""The programs that docs/howto/rocketmq-5-clients.md prints, as printed, each with the released client of its language.

They wait for ten seconds, so all of them run side by side, each at a server of its own.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from rig.brokers import Kind
from rig.dispatched import until_routed
from rig.drivers import JVM_FLAGS
from rig.grpc_clients import GrpcBroker
from rig.toolchain import (
    GRPC_CLIENT_VERSION,
    INTEROP,
    REPOSITORY,
    Missing,
    go_program,
    grpc_python,
    java_build,
    node_modules,
    run,
)

import orbitmq

PAGE = REPOSITORY / "docs" / "howto" / "rocketmq-5-clients.md"
PRINTED = "localhost:8081"
LIMIT_S = 180


def java(program: Path) -> list[str | Path]:
    build = java_build(GRPC_CLIENT_VERSION)
    return [build.java, *JVM_FLAGS, f"-Duser.home={program.parent}", "-cp", build.classpath, program]


def python(program: Path) -> list[str | Path]:
    return [grpc_python(), program]


def node(program: Path) -> list[str | Path]:
    node, modules = node_modules("grpc_clients/node")
    (program.parent / "node_modules").symlink_to(modules)
    return [node, program]


def go(program: Path) -> list[str | Path]:
    for name in ("go.mod", "go.sum"):
        shutil.copy(INTEROP / "grpc_clients" / "go" / name, program.parent)
    run([go_program(), "build", "-o", "program", "."], cwd=program.parent)
    return [program.parent / "program"]


PROGRAMS: dict[str, Callable[[Path], list[str | Path]]] = {
    "OrderCancel.java": java,
    "order_cancel.py": python,
    "order-cancel.js": node,
    "main.go": go,
}
"""The file that a reader saves a program in, and what runs it there."""


class Running(NamedTuple):
    process: subprocess.Popen[str]
    errors: Path


def start(file: str, folder: Path, stack: ExitStack) -> Running:
    """The program that is saved in that file, at a server with its topic. Raises Missing."""
    program = folder / "program" / file
    program.parent.mkdir()
    broker = stack.enter_context(GrpcBroker(Kind.ORBITMQ, folder / "server", {}))
    (text,) = re.findall(rf"^```\w+ {re.escape(file)}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert text.count(PRINTED) == 1
    program.write_text(text.replace(PRINTED, f"localhost:{broker.grpc_port}"))
    command = PROGRAMS[file](program)
    asyncio.run(make_topic(broker.name_server))
    errors = folder / "errors"
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=stack.enter_context(errors.open("w")),
        text=True,
        cwd=program.parent,
        env={**os.environ, "HOME": str(program.parent)},
    )
    stack.callback(end, process)
    watchdog = threading.Timer(LIMIT_S, process.kill)
    stack.callback(watchdog.cancel)
    watchdog.start()
    return Running(process, errors)


def end(process: subprocess.Popen[str]) -> None:
    """Its client closes within half a minute, which nobody waits for."""
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def make_topic(name_server: str) -> None:
    async with orbitmq.connect(name_server) as mq:
        await mq.admin.create_topic("Orders", attributes={"message.type": "DELAY"})
        await until_routed(mq, "Orders")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Running | Missing]]:
    with ExitStack() as stack:
        running: dict[str, Running | Missing] = {}
        for file in PROGRAMS:
            try:
                running[file] = start(file, tmp_path_factory.mktemp("howto"), stack)
            except Missing as missing:
                running[file] = missing
        yield running


@pytest.mark.parametrize(
    "file",
    [
        pytest.param("OrderCancel.java", marks=pytest.mark.java),
        "order_cancel.py",
        pytest.param("order-cancel.js", marks=pytest.mark.node),
        pytest.param("main.go", marks=pytest.mark.go),
    ],
)
def test_the_printed_program_cancels_what_is_unpaid(file: str, started: dict[str, Running | Missing]) -> None:
    running = started[file]
    if isinstance(running, Missing):
        pytest.skip(str(running))
    assert running.process.stdout is not None
    printed = iter(running.process.stdout.readline, "")  # some clients also print lines of their logging there
    assert "order-43 is paid\n" in printed, running.errors.read_text()
    assert "cancel order-42\n" in printed, running.errors.read_text()
