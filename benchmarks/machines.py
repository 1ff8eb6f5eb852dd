"""Machines to be cut off: network namespaces on a bridge, with processes in them, all inside a namespace of this program's own.

Rules of this file
1. `in_own_network` starts the program again where it may make networks, without more rights than its user has; nothing of the host's
   network is touched, and everything is gone with the process.
2. A machine that is cut off hears nothing and is heard by nobody: connections stay open and silent, as behind a cable that is out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import rigpath  # noqa: F401

# isort: split
from rig.process import ServerProcess
from rig.toolchain import Missing

OWN_ADDRESS: Final = "10.77.0.1"
"""Of this program, the clients and the name server."""
INSIDE: Final = "ORBITMQ_BENCHMARK_INSIDE"
BRIDGE: Final = "cables"


def in_own_network() -> None:
    """Return inside a network of one's own; the first call replaces the process. Raises `Missing` where the system does not allow it."""
    if os.environ.get(INSIDE):
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "addr", "add", f"{OWN_ADDRESS}/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        return
    for name in ("unshare", "nsenter", "ip"):
        if shutil.which(name) is None:
            raise Missing(f"{name} is not installed (Debian: apt install util-linux iproute2)")
    enter = ["unshare", "--user", "--map-root-user", "--net"]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        raise Missing(
            "this system lets its users make no network namespaces (sysctl kernel.unprivileged_userns_clone, or run it as root)"
        )
    os.environ[INSIDE] = "1"
    os.execvp("unshare", [*enter, "--", sys.executable, *sys.argv])


class Machine:
    """One of them. `address` is reached from this program and from the other machines."""

    def __init__(self, number: int) -> None:
        """number: from 1, and used by no other."""
        self.address = self.address_of(number)
        self._cable = f"cable{number}"
        self._holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        ends = time.monotonic() + 5
        while Path(f"/proc/{self._holder.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
            if time.monotonic() > ends:
                raise Missing("a network namespace was not made within five seconds")
            time.sleep(0.01)
        _run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", str(self._holder.pid))
        _run("ip", "link", "set", self._cable, "master", BRIDGE, "up")
        _run(*self.inside, "ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        _run(*self.inside, "ip", "link", "set", "eth0", "up")
        _run(*self.inside, "ip", "link", "set", "lo", "up")

    @staticmethod
    def address_of(number: int) -> str:
        return f"10.77.0.{10 + number}"

    @property
    def inside(self) -> list[str]:
        """Words before a command that is to run there."""
        return ["nsenter", "--target", str(self._holder.pid), "--net", "--"]

    def start(self, command: list[str | Path], log: Path) -> ServerProcess:
        return ServerProcess([*self.inside, *command], log)

    def cut(self) -> None:
        _run("ip", "link", "set", self._cable, "down")

    def heal(self) -> None:
        _run("ip", "link", "set", self._cable, "up")

    def close(self) -> None:
        # By itself it goes some time after the namespace, perhaps already now.
        subprocess.run(["ip", "link", "delete", self._cable], capture_output=True, check=False)
        self._holder.kill()
        self._holder.wait()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{' '.join(words)}: {done.stderr.strip()}")
