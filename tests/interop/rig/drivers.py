"""Client programs of other makers, driven by commands, heard through events.

All drivers (Java, Node, C++) understand the same commands, one line each, and print one JSON object per event; see the
head of each driver for its list. `Driver` starts one, collects its events on a thread and waits for what a test needs.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from rig.toolchain import (
    BROKER_VERSION,
    GRPC_CLIENT_VERSION,
    INTEROP,
    cpp_python,
    delta_judge,
    java_build,
    node_modules,
)

Event = dict[str, Any]

COMMAND_LIMIT_S: Final = 180
CLOSE_LIMIT_S: Final = 120
JVM_FLAGS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Drocketmq.client.logUseSlf4j=false")
OPEN_TO_SPARK: Final = ("java.lang", "java.lang.invoke", "java.nio", "java.util", "sun.nio.ch", "sun.security.action")
"""What Spark reaches into, of all that its own start script opens."""


class DriverFailed(AssertionError):
    """A command failed, or an expected event did not come."""


class Driver:
    """One running client program."""

    def __init__(
        self, name: str, command: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self._errors = name, folder / f"{name}.err"
        with open(self._errors, "ab") as err:
            self._popen = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True,
                cwd=folder, env=dict(env) if env is not None else None, start_new_session=True,
            )  # fmt: skip
        self._events: list[Event] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, name=f"events of {name}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Driver:
        self.wait(lambda events: any(e["event"] == "ready" for e in events), COMMAND_LIMIT_S, "start")
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
        self._reader.join(5)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()

    def events(self, kind: str, **fields: object) -> list[Event]:
        """Events so far of one kind whose fields have the given values, in order."""
        with self._changed:
            return [
                e
                for e in self._events
                if e["event"] == kind and all(e.get(key) == value for key, value in fields.items())
            ]

    def command(self, name: str, **arguments: object) -> list[Event]:
        """Run one command to its end; the events printed meanwhile. Raises `DriverFailed`."""
        line = f"{name}?{urlencode(arguments)}"
        with self._changed:
            start = len(self._events)
        assert self._popen.stdin is not None
        self._popen.stdin.write(line + "\n")
        self._popen.stdin.flush()
        self.wait(lambda events: any(e["event"] in ("done", "failed") for e in events[start:]), COMMAND_LIMIT_S, line)
        with self._changed:
            printed = self._events[start:]
        failed = [e for e in printed if e["event"] == "failed"]
        if failed:
            raise DriverFailed(f"{self.name}: {failed[0]['command']} failed: {failed[0]['error']}\n{self._tail()}")
        return printed

    def wait(self, condition: Callable[[list[Event]], bool], limit_s: float, what: str) -> None:
        """Return when the events so far satisfy the condition. Raises `DriverFailed` with the last events."""
        end = time.monotonic() + limit_s
        with self._changed:
            while not condition(self._events):
                left = end - time.monotonic()
                if left <= 0 or self._ended:
                    how = "the program ended" if self._ended else f"nothing within {limit_s:.0f} s"
                    last = "\n".join(json.dumps(e)[:300] for e in self._events[-5:])
                    raise DriverFailed(f"{self.name}: {what}: {how}\n{last}\n{self._tail()}")
                self._changed.wait(left)

    def satisfied(self, condition: Callable[[list[Event]], bool], limit_s: float) -> bool:
        """As `wait`, but says whether it came to pass."""
        try:
            self.wait(condition, limit_s, "")
        except DriverFailed:
            return False
        return True

    def close(self) -> None:
        """Orderly end of the client. Raises `DriverFailed` when it does not end by itself with status 0."""
        assert self._popen.stdin is not None
        self._popen.stdin.write("close\n")
        self._popen.stdin.flush()
        try:
            status = self._popen.wait(CLOSE_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise DriverFailed(f"{self.name}: did not close within {CLOSE_LIMIT_S} s\n{self._tail()}") from None
        if status:
            raise DriverFailed(f"{self.name}: ended with status {status}\n{self._tail()}")

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            # Client libraries print lines of their own to standard output; events are the JSON objects among them.
            if line.startswith('{"event":'):
                with self._changed:
                    self._events.append(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _tail(self) -> str:
        return self._errors.read_text(errors="replace")[-2000:]


def java_driver(version: str, name_server: str, folder: Path) -> Driver:
    """The official Java client of a version."""
    return _java(version, "interop.ClientDriver", name_server, folder)


def lite_driver(version: str, name_server: str, folder: Path) -> Driver:
    """The official Java lite pull consumer of a version; its commands: lite, leave."""
    return _java(version, "interop.LiteDriver", name_server, folder)


def dialogue_driver(version: str, name_server: str, folder: Path) -> Driver:
    """The official Java client asking, answering and tracing; its commands: request, answer, trace, traced."""
    return _java(version, "interop.DialogueDriver", name_server, folder)


def transaction_driver(version: str, name_server: str, folder: Path) -> Driver:
    """The official Java producer of transactional messages; its command: half."""
    return _java(version, "interop.TransactionDriver", name_server, folder)


def grpc_driver(proxy: str, topics: Sequence[str], folder: Path) -> Driver:
    """The official gRPC client at a proxy, with a producer of these topics; its commands: send, transact, recall, push, pop, again."""
    return _java(GRPC_CLIENT_VERSION, "interop.GrpcDriver", proxy, folder, ",".join(topics))


def store_reader(name_server: str, folder: Path) -> Driver:
    """Reads every queue of a broker with the Java client; its commands: read, key, view."""
    return _java(BROKER_VERSION, "interop.StoreReader", name_server, folder)


def delta_reader(folder: Path) -> Driver:
    """Spark with Delta's own package; its command: read."""
    build = delta_judge()
    opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPEN_TO_SPARK]
    flags = [*JVM_FLAGS, "-Xmx768m", *opened, f"-Djava.io.tmpdir={folder}"]
    return Driver("delta", [build.java, *flags, "-cp", build.classpath, "interop.DeltaReader"], folder)


def mqadmin_driver(name_server: str, folder: Path, version: str) -> Driver:
    """mqadmin; its command: run. See `rig.mqadmin`."""
    return _java(version, "interop.AdminDriver", name_server, folder)


def node_driver(name_server: str, folder: Path, signs_as: tuple[str, str] | None = None) -> Driver:
    """The Node client ali-ons; signs_as: its access key and secret key."""
    node, modules = node_modules()
    known = {} if signs_as is None else {"ROCKETMQ_ACCESS_KEY": signs_as[0], "ROCKETMQ_SECRET_KEY": signs_as[1]}
    return Driver(
        "node",
        [node, INTEROP / "node" / "driver.js", name_server],
        folder,
        env={"NODE_PATH": str(modules), "HOME": str(folder), **known},
    )


def cpp_driver(name_server: str, folder: Path) -> Driver:
    """The C++ client through the wheel `rocketmq`. It logs below HOME, hence a HOME of its own."""
    return Driver(
        "cpp",
        [cpp_python(), INTEROP / "cpp" / "driver.py", name_server],
        folder,
        env={"HOME": str(folder), "PYTHONUNBUFFERED": "1"},
    )


def classic_program(version: str, name_server: str, folder: Path) -> list[Event]:
    """Run the classic delayed-message program; its events. Raises `DriverFailed` when nothing came within its 30 s."""
    build = java_build(version)
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [str(build.java), *JVM_FLAGS, f"-Duser.home={folder}", "-cp", build.classpath, "interop.ClassicDelay", name_server],
        capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False, cwd=folder,
    )  # fmt: skip
    if done.returncode:
        raise DriverFailed(
            f"the classic program ended with {done.returncode}:\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"event":')]


def _java(version: str, main_class: str, server: str, folder: Path, *more: str) -> Driver:
    build = java_build(version)
    command: list[str | Path] = [
        build.java,
        *JVM_FLAGS,
        f"-Duser.home={folder}",
        "-cp",
        build.classpath,
        main_class,
        server,
        *more,
    ]
    return Driver(f"java-{version}", command, folder)
