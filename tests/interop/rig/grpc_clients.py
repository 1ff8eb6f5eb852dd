"""Released clients of RocketMQ 5, and the brokers they call: ours, and RocketMQ's with its proxy in the same process.

All drivers understand the commands of GrpcDriver.java.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rig.brokers import START_LIMIT_S, BrokerUnderTest, JvmProfile, Kind, LocalProxyRole
from rig.drivers import JVM_FLAGS, Driver
from rig.process import bindable
from rig.toolchain import (
    GRPC_CLIENT_VERSIONS,
    INTEROP,
    grpc_go_client,
    grpc_python,
    grpc_rust_client,
    java_build,
    node_modules,
)


class GrpcClient(NamedTuple):
    """One release. `command`: what starts its driver, and variables of its environment.

    `pushes`, `hides`: it has push consumers, and changes invisible times. `retries_in_order`: a message of an order that failed comes again
    before the next one. `tells_late`: a program hears that its acknowledgement came too late.
    """

    name: str
    command: Callable[[], tuple[list[str | Path], dict[str, str]]]
    recalls: bool = True
    prioritizes: bool = True
    pushes: bool = True
    hides: bool = True
    retries_in_order: bool = True
    tells_late: bool = True
    uses_tls: bool = False

    def drive(
        self,
        endpoint: str,
        topics: Sequence[str],
        folder: Path,
        signs_as: tuple[str, str] | None = None,
        *,
        tls: bool = False,
    ) -> Driver:
        """A running program with a producer of these topics; signs_as: its access key and secret key."""
        command, variables = self.command()
        known = {} if signs_as is None else {"ROCKETMQ_ACCESS_KEY": signs_as[0], "ROCKETMQ_SECRET_KEY": signs_as[1]}
        environment = {
            **os.environ,
            **variables,
            **_logs(folder),
            **known,
            "ROCKETMQ_TLS": str(tls or self.uses_tls).lower(),
        }
        return Driver(self.name, [*command, endpoint, ",".join(topics)], folder, environment)


def _logs(folder: Path) -> dict[str, str]:
    """Variables by which the clients log in this folder."""
    return {"HOME": str(folder), "JAVA_TOOL_OPTIONS": f"-Duser.home={folder}", "rocketmq.client.logRoot": str(folder)}


def _java(version: str) -> Callable[[], tuple[list[str | Path], dict[str, str]]]:
    def command() -> tuple[list[str | Path], dict[str, str]]:
        build = java_build(version)
        return [build.java, *JVM_FLAGS, "-cp", build.classpath, "interop.GrpcDriver"], {}

    return command


def _python() -> tuple[list[str | Path], dict[str, str]]:
    driver = INTEROP / "grpc_clients" / "python" / "driver.py"
    return [grpc_python(), driver], {"PYTHONUNBUFFERED": "1"}


def _node() -> tuple[list[str | Path], dict[str, str]]:
    node, modules = node_modules("grpc_clients/node")
    return [node, INTEROP / "grpc_clients" / "node" / "driver.js"], {"NODE_PATH": str(modules)}


_OLDEST, _OLD, _NEW = GRPC_CLIENT_VERSIONS
CLIENTS: Final = (
    GrpcClient(f"java-{_OLDEST}", _java(_OLDEST), recalls=False, prioritizes=False, uses_tls=True),
    GrpcClient(f"java-{_OLD}", _java(_OLD), recalls=False, prioritizes=False),
    GrpcClient(f"java-{_NEW}", _java(_NEW)),
    GrpcClient("python", _python),
    GrpcClient("node", _node, retries_in_order=False),
    GrpcClient("go", lambda: ([grpc_go_client()], {}), retries_in_order=False, tells_late=False, uses_tls=True),
)
RUST: Final = GrpcClient(
    "rust", lambda: ([grpc_rust_client()], {}), recalls=False, prioritizes=False, pushes=False, hides=False
)
"""Compiled for two minutes, and so not part of the ordinary tests."""


class GrpcBroker(BrokerUnderTest):
    """A name server and a broker with a port for gRPC."""

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        settings: Mapping[str, str],
        grpc_port: int | None = None,
        profile: JvmProfile = JvmProfile.TLS,
    ) -> None:
        """`grpc_port`: where it is to listen, if it matters."""
        super().__init__(kind, folder, settings=settings)
        # Between the ports of a name server and a broker, and behind them: `free_ports` looked for these too.
        self.grpc_port = grpc_port or self.nameserver_port + 2
        if kind is Kind.ORBITMQ:
            (serve,) = self.roles
            serve.settings["grpcServerPort"] = str(self.grpc_port)
        else:
            ports = self.broker_port, self.grpc_port, self.nameserver_port + 5
            self.roles[1] = LocalProxyRole(folder / "proxy", self.data, ports, self.name_server, settings, profile)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def start(self) -> GrpcBroker:
        """As for every broker, and wait until the port for gRPC is taken."""
        super().start()
        ends = time.monotonic() + START_LIMIT_S
        while bindable(self.grpc_port):
            if time.monotonic() > ends:
                raise AssertionError(f"nobody serves {self.endpoint}:\n{self.logs()}")
            time.sleep(0.05)
        return self
