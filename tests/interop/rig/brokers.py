"""Servers under test: RocketMQ's Java name server and broker, and orbitmq, behind one interface.

`BrokerUnderTest` is a name server and a broker that clients can use: one process of ours, or two of Java's.
`NameServerRole` and `BrokerRole` are single roles, for tests that pair a role of ours with one of theirs.
Settings are keys of RocketMQ's broker.conf for both kinds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final

from rig.process import ServerProcess, free_ports
from rig.server_classes import kept_classes
from rig.toolchain import BROKER_VERSION, Missing, java_build
from rig.wire import CLUSTER, SUCCESS, Wire

START_LIMIT_S: Final = 180
CLUSTER_NAME, BROKER_NAME = "DefaultCluster", "broker-a"

OPEN_MODULES: Final = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED", "-Dio.netty.tryReflectionSetAccessible=true",
)  # fmt: skip


class Kind(Enum):
    """Whose server it is."""

    ORBITMQ = "orbitmq"
    JAVA = "java"


KINDS_UNDER_TEST: Final = [
    Kind(name.strip()) for name in os.environ.get("INTEROP_BROKERS", Kind.ORBITMQ.value).split(",")
]
"""A comma list of "orbitmq" and "java" in the environment. "java" is the control of the tests themselves: what they
demand of us, RocketMQ's own broker must satisfy."""


class JvmProfile(Enum):
    """How the JVMs are started: quick and small for tests, as RocketMQ's own start scripts do it for measurements.

    With TLS each server makes a key at its start, which is more than half of the CPU that a start takes.
    """

    TEST = (
        "-Xms128m -Xmx768m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MaxDirectMemorySize=1g -Dtls.server.mode=disabled",
        "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dtls.server.mode=disabled",
    )
    TLS = (
        "-Xms128m -Xmx768m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MaxDirectMemorySize=1g -Dtls.server.mode=permissive",
        "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dtls.server.mode=permissive",
    )
    MEASURE = (
        "-server -Xms1g -Xmx2g -XX:+UseG1GC -XX:G1HeapRegionSize=16m -XX:G1ReservePercent=25 -XX:InitiatingHeapOccupancyPercent=30"
        " -XX:SoftRefLRUPolicyMSPerMB=0 -XX:-OmitStackTraceInFastThrow -XX:MaxDirectMemorySize=4g",
        "-server -Xms256m -Xmx256m -XX:+UseG1GC",
    )


SELDOM_FLUSHED: Final = {"timerFlushIntervalMs": "600000"}
"""For tests, unless they say otherwise: at the start and at an orderly end. RocketMQ's timers look through their whole wheel of 38 MB at
each flush, which takes 0.4 s: every second, as they do it by themselves, that is a third of a core for a broker that does nothing."""

INNER_PASSWORD: Final = "inner-hush"
_AUTH: Final = "org.apache.rocketmq.auth"


def known_callers(user: str, password: str) -> dict[str, str]:
    """Settings of a broker that asks everybody who they are and what they may: `user` may everything, and so may `inner`, as which the
    server itself calls. RocketMQ's broker needs the names of its own classes; ours takes them too."""
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": user, "password": password}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": INNER_PASSWORD}),
        "authorizationEnabled": "true",
        "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
        "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    }


PROXY_HEAP: Final = "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dtls.server.mode=disabled"
QUICK_HEAPS: Final = frozenset({*JvmProfile.TEST.value, *JvmProfile.TLS.value, PROXY_HEAP})
"""Of JVMs that start with the classes that were kept."""


class Server:
    """A role that runs as one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: ServerProcess | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def _launch(self) -> ServerProcess:
        raise NotImplementedError

    def start(self) -> None:
        """Start the process; readiness is the caller's to wait for."""
        if self.process is not None and self.process.running:
            raise RuntimeError("already running")
        self.process = self._launch()

    def stop(self) -> int:
        """Orderly stop; exit status (0 when it was not running)."""
        return self.process.stop() if self.process is not None and self.process.running else 0

    def kill(self) -> None:
        if self.process is not None and self.process.running:
            self.process.kill()

    def pids(self) -> list[int]:
        return [self.process.pid] if self.process is not None and self.process.running else []

    def log(self) -> str:
        return self.process.tail() if self.process is not None else ""


class NameServerRole(Server):
    """A name server alone."""

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        port: int,
        profile: JvmProfile = JvmProfile.TEST,
        release: str = BROKER_VERSION,
    ) -> None:
        super().__init__(folder)
        self.kind, self.port, self._profile, self._release = kind, port, profile, release

    def _launch(self) -> ServerProcess:
        if self.kind is Kind.ORBITMQ:
            return ServerProcess(
                [
                    *orbitmq_command(),
                    "nameserver",
                    "--host",
                    "127.0.0.1",
                    "--nameserver-port",
                    str(self.port),
                    "--data",
                    self.folder / "data",
                ],
                self.folder / "nameserver.log",
            )
        conf = self.folder / "namesrv.conf"
        conf.write_text(
            f"listenPort={self.port}\nbindAddress=127.0.0.1\n"
            f"kvConfigPath={self.folder / 'kvConfig.json'}\nconfigStorePath={self.folder / 'namesrv.properties'}\n"
        )
        main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
        return launch_java(self._release, self.folder, self._profile.value[1], main_class, "namesrv.log", "-c", conf)


class BrokerRole(Server):
    """A broker alone, registered with a given name server."""

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        data: Path,
        port: int,
        name_server: str,
        settings: Mapping[str, str],
        profile: JvmProfile = JvmProfile.TEST,
        release: str = BROKER_VERSION,
    ) -> None:
        super().__init__(folder)
        self.kind, self.data, self.port, self.name_server = kind, data, port, name_server
        self.settings, self._profile, self._release = dict(settings), profile, release

    def _launch(self) -> ServerProcess:
        if self.kind is Kind.ORBITMQ:
            settings = {"grpcServerPort": "0", **self.settings}
            sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            return ServerProcess(
                [
                    *orbitmq_command(),
                    "broker",
                    "--data",
                    self.data,
                    "--host",
                    "127.0.0.1",
                    "--broker-port",
                    str(self.port),
                    "--set",
                    f"namesrvAddr={self.name_server}",
                    *sets,
                ],
                self.folder / "broker.log",
            )
        conf = self.folder / "broker.conf"
        settings = self.settings if self._profile is JvmProfile.MEASURE else {**SELDOM_FLUSHED, **self.settings}
        keys = java_settings(self.data, self.port, self.name_server, settings)
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        main_class = "org.apache.rocketmq.broker.BrokerStartup"
        return launch_java(self._release, self.folder, self._profile.value[0], main_class, "broker.log", "-c", conf)


class ProxyRole(Server):
    """RocketMQ's proxy for gRPC clients, in front of whatever stands at a name server. It takes short times from its clients."""

    def __init__(
        self,
        release: str,
        folder: Path,
        ports: tuple[int, int],
        name_server: str,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """ports: for gRPC, and for the remoting protocol, which nobody asks here. settings: keys of its file, beside those set here."""
        super().__init__(folder)
        self.release, self.ports, self.name_server = release, ports, name_server
        self._settings = dict(settings or {})

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"

    def _launch(self) -> ServerProcess:
        conf = self.folder / "rmq-proxy.json"
        grpc_port, remoting_port = self.ports
        settings = {
            "rocketMQClusterName": CLUSTER_NAME,
            "namesrvAddr": self.name_server,
            "grpcServerPort": grpc_port,
            "remotingListenPort": remoting_port,
            "minInvisibleTimeMillsForRecv": 1000,
            "grpcClientConsumerMinLongPollingTimeoutMillis": 1000,
            "rocketmqMQClientNum": 1,
            **self._settings,
        }
        conf.write_text(json.dumps(settings))
        main_class = "org.apache.rocketmq.proxy.ProxyStartup"
        options = ("-pm", "cluster", "-pc", conf)
        return launch_java(self.release, self.folder, PROXY_HEAP, main_class, "proxy.log", *options)

    def wait_serving(self, limit_s: float = START_LIMIT_S) -> None:
        """Return when it says that it has started. Raises AssertionError with its log otherwise."""
        end = time.monotonic() + limit_s
        while "startup successfully" not in self.log():
            if time.monotonic() > end or not self.pids():
                raise AssertionError(f"the proxy does not start:\n{self.log()}")
            time.sleep(0.05)


class LocalProxyRole(BrokerRole):
    """RocketMQ's broker with its proxy in the same process: it answers gRPC on a port of its own. Plain and over TLS."""

    def __init__(
        self,
        folder: Path,
        data: Path,
        ports: tuple[int, int, int],
        name_server: str,
        settings: Mapping[str, str],
        profile: JvmProfile = JvmProfile.TLS,
    ) -> None:
        """ports: of the broker, for gRPC, and for the proxy's own remoting, which nobody asks here."""
        super().__init__(Kind.JAVA, folder, data, ports[0], name_server, settings, profile)
        self._ports = ports

    def _launch(self) -> ServerProcess:
        broker_port, grpc_port, remoting_port = self._ports
        conf, proxy = self.folder / "broker.conf", self.folder / "rmq-proxy.json"
        keys = java_settings(self.data, broker_port, self.name_server, {**SELDOM_FLUSHED, **self.settings})
        conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        proxy.write_text(
            json.dumps(
                {
                    "rocketMQClusterName": CLUSTER_NAME,
                    "namesrvAddr": self.name_server,
                    "grpcServerPort": grpc_port,
                    "remotingListenPort": remoting_port,
                    "localServeAddr": "127.0.0.1",
                    "authConfigPath": str(self.folder / "auth"),  # else in a folder "null" where this was started
                }
            )
        )
        main_class = "org.apache.rocketmq.proxy.ProxyStartup"
        options = ("-pm", "local", "-bc", conf, "-pc", proxy)
        return launch_java(BROKER_VERSION, self.folder, self._profile.value[0], main_class, "proxy.log", *options)


class ServeRole(Server):
    """`orbitmq serve`: name server and broker in one process."""

    def __init__(
        self,
        folder: Path,
        data: Path,
        nameserver_port: int,
        broker_port: int,
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder)
        self.data, self.nameserver_port, self.broker_port, self.settings = (
            data,
            nameserver_port,
            broker_port,
            dict(settings),
        )
        self._environment = dict(environment or {})

    def _launch(self) -> ServerProcess:
        sets = [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]
        return ServerProcess(
            [
                *orbitmq_command(),
                "serve",
                "--data",
                self.data,
                "--host",
                "127.0.0.1",
                "--nameserver-port",
                str(self.nameserver_port),
                "--broker-port",
                str(self.broker_port),
                *sets,
            ],
            self.folder / "serve.log",
            self._environment,
        )


class BrokerUnderTest:
    """A name server and a broker on free ports over one data directory. Restartable; also by the other kind."""

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        *,
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
        ports: tuple[int, int] | None = None,
        profile: JvmProfile = JvmProfile.TEST,
        environment: Mapping[str, str] | None = None,
        release: str = BROKER_VERSION,
    ) -> None:
        """`environment` adds variables to the process of ours; `release` is that of Java's."""
        self.kind, self.folder = kind, folder
        self.data = data or folder / "data"
        self.nameserver_port, self.broker_port = ports or free_ports()
        self.roles: list[Server]
        settings = settings or {}
        if kind is Kind.ORBITMQ:
            settings = {"grpcServerPort": "0", **settings}
            ports_of_ours = self.nameserver_port, self.broker_port
            self.roles = [ServeRole(folder, self.data, *ports_of_ours, settings, environment)]
        else:
            self.roles = [
                NameServerRole(kind, folder / "namesrv", self.nameserver_port, profile, release),
                BrokerRole(
                    kind, folder / "broker", self.data, self.broker_port, self.name_server, settings, profile, release
                ),
            ]

    @property
    def name_server(self) -> str:
        return f"127.0.0.1:{self.nameserver_port}"

    def __enter__(self) -> BrokerUnderTest:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> BrokerUnderTest:
        """Start everything and wait until the broker stands in the name server's list."""
        self.launch()
        wait_registered(self.nameserver_port, self.broker_port, self.roles)
        return self

    def launch(self) -> None:
        """Start the processes without waiting."""
        for role in self.roles:
            role.start()

    def wire(self, timeout_s: float = 60) -> Wire:
        """A connection to the broker."""
        return Wire(self.broker_port, timeout_s=timeout_s, nameserver_port=self.nameserver_port)

    def stop(self) -> float:
        """Orderly stop of all processes, the broker first. Seconds it took; raises when the exit status of ours is not 0."""
        begin = time.monotonic()
        for role in reversed(self.roles):
            status = role.stop()
            if status != 0 and self.kind is Kind.ORBITMQ:
                raise AssertionError(f"orbitmq ended with status {status} after SIGTERM:\n{role.log()}")
        return time.monotonic() - begin

    def kill(self) -> None:
        """SIGKILL of whatever still runs."""
        for role in self.roles:
            role.kill()

    def pids(self) -> list[int]:
        """Main processes, the broker's last."""
        return [pid for role in self.roles for pid in role.pids()]

    def logs(self) -> str:
        return "\n".join(role.log() for role in self.roles)


def wait_registered(
    nameserver_port: int, broker_port: int, roles: list[Server], limit_s: float = START_LIMIT_S
) -> None:
    """Return when the name server lists the broker's address. Raises AssertionError with the logs otherwise."""
    end, address = time.monotonic() + limit_s, f":{broker_port}".encode()
    while time.monotonic() < end:
        for role in roles:
            if role.process is not None and not role.process.running:
                raise AssertionError(f"a server ended while starting:\n{role.log()}")
        try:
            with Wire(nameserver_port, timeout_s=5) as names:
                head, body = names.ask(CLUSTER, {})
            if head["code"] == SUCCESS and address in body:
                with Wire(broker_port, timeout_s=5):
                    return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError(
        f"no broker on port {broker_port} known to the name server after {limit_s} s:\n"
        + "\n".join(role.log() for role in roles)
    )


def wait_unregistered(nameserver_port: int, broker_port: int, limit_s: float = 120) -> None:
    """Return when the name server does not list the broker's address any more."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        with Wire(nameserver_port, timeout_s=5) as names:
            head, body = names.ask(CLUSTER, {})
        if head["code"] != SUCCESS or f":{broker_port}".encode() not in body:
            return
        time.sleep(0.1)
    raise AssertionError(f"the broker on port {broker_port} is still listed after {limit_s} s")


def orbitmq_command() -> list[str | Path]:
    """The installed `orbitmq` of this environment."""
    script = Path(sys.executable).with_name("orbitmq")
    if script.exists():
        return [script]
    found = shutil.which("orbitmq")
    if found is None:
        raise Missing("the command orbitmq is not installed in this environment: pip install -e .")
    return [found]


def java_settings(data: Path, port: int, name_server: str, settings: Mapping[str, str]) -> dict[str, str]:
    """broker.conf of the Java broker: everything on loopback, the rest as it comes."""
    return {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": BROKER_NAME,
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "namesrvAddr": name_server,
        "storePathRootDir": str(data),
        "storePathCommitLog": str(data / "commitlog"),
        "autoCreateTopicEnable": "true",
        "enablePropertyFilter": "true",
        "flushDiskType": "ASYNC_FLUSH",
        **settings,
    }


def launch_java(
    release: str, folder: Path, heap: str, main_class: str, log: str, *options: str | Path, before: Sequence[str] = ()
) -> ServerProcess:
    """A Java server whose home, logs, user and temporary files all lie in `folder`. `before` are words before its command."""
    build = java_build(release)
    if heap in QUICK_HEAPS:
        classes = (
            servers_classes(release) if release == BROKER_VERSION else ""
        )  # of others too few are started to earn a rehearsal
        heap = f"{heap} {classes}"
    home = folder / "home"
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in ("logback_broker.xml", "logback_namesrv.xml"):
        (home / "conf" / name).write_text("<configuration/>")  # releases of 4.x end without
    return ServerProcess(
        [
            *before,
            build.java,
            *heap.split(),
            *OPEN_MODULES,
            f"-Drocketmq.home.dir={home}",
            f"-Duser.home={folder}",
            f"-Djava.io.tmpdir={folder}",
            f"-Drocketmq.client.logRoot={folder / 'logs'}",
            "-cp",
            build.libraries,
            main_class,
            *options,
        ],
        folder / log,
        env={"ROCKETMQ_HOME": str(home)},
    )


def servers_classes(release: str) -> str:
    """The option of a JVM with which servers of that release start sooner; made when there is none yet."""
    return kept_classes(release, partial(_rehearsal, release))


def _rehearsal(release: str, folder: Path, option: str) -> ServerProcess:
    """A broker on an empty directory, without a name server, that keeps its classes when it ends."""
    ports = free_ports()
    settings = java_settings(
        folder / "data", ports[1], f"127.0.0.1:{ports[0]}", {"mappedFileSizeCommitLog": "16777216"}
    )
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    heap = f"{JvmProfile.TEST.value[0]} {option}"
    return launch_java(release, folder, heap, "org.apache.rocketmq.broker.BrokerStartup", "broker.log", "-c", conf)
