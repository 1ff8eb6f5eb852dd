"""`python -m tests.prepare`: fetch and build what the suites would fetch and build in the middle of a run, side by side.

Programs of other makers come from Maven, npm, pip and Go, and take a minute in which the machine waits for the network; the archive of
Spark's classes takes 50 s of CPU, and what is written in Go a minute. The tests themselves are compiled, which takes 30 s of CPU and which
every lane would do at once. What cannot be had is not said here: the tests that need it say it.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS / "interop"), str(TESTS / "spark"), str(TESTS / "system")]

from class_archive import quick_start  # noqa: E402
from examples.order_timeout_group.etcd import installed_etcd  # noqa: E402
from installed import Missing as NoWheel  # noqa: E402
from installed import installed  # noqa: E402
from rig.brokers import servers_classes  # noqa: E402
from rig.toolchain import (  # noqa: E402
    BROKER_VERSION,
    PROFILES,
    Missing,
    cpp_python,
    debian_etcd,
    debian_logrotate,
    debian_promtool,
    debian_systemd_analyze,
    delta_judge,
    go_judges,
    grpc_go_client,
    grpc_python,
    java_build,
    load_generator,
    node_modules,
)


def java_builds() -> None:
    """One after the other: all write into Maven's repository."""
    for version in PROFILES:
        java_build(version)
    servers_classes(BROKER_VERSION)
    delta_judge()


def go_programs() -> None:
    """One after the other: each compiles with every core."""
    go_judges()
    grpc_go_client()


def python_clients() -> None:
    cpp_python()
    grpc_python()


def node_clients() -> None:
    node_modules()
    node_modules("grpc_clients/node")


def collected() -> None:
    subprocess.run(
        [sys.executable, "-m", "pytest", "-qq", "--collect-only"],
        cwd=TESTS.parent,
        stdout=subprocess.DEVNULL,
        check=False,
    )


def wheel() -> None:
    with contextlib.suppress(NoWheel):  # of the rig by its other name
        installed()


def etcd() -> None:
    """What is not there is said: the tests of it are skipped, or fail where everything is required."""
    if installed_etcd() is None:
        of_debian("etcd", debian_etcd)


def promtool() -> None:
    of_debian("promtool", debian_promtool)


def logrotate() -> None:
    of_debian("logrotate", debian_logrotate)


def systemd_analyze() -> None:
    of_debian("systemd-analyze", debian_systemd_analyze)


def of_debian(name: str, unpacked: Callable[[], Path]) -> None:
    """A program that the machine lacks."""
    if shutil.which(name) is None:
        try:
            unpacked()
        except Missing as missing:
            print(f"no {name} of Debian's: {missing}")


def timed(build: Callable[[], object]) -> str:
    began = time.monotonic()
    with contextlib.suppress(Missing):
        build()
    return f"{build.__name__} {time.monotonic() - began:.0f} s"


if __name__ == "__main__":
    with ThreadPoolExecutor() as pool:
        print(
            "prepared:",
            ", ".join(
                pool.map(
                    timed,
                    (
                        java_builds,
                        quick_start,
                        collected,
                        go_programs,
                        node_clients,
                        python_clients,
                        etcd,
                        promtool,
                        logrotate,
                        systemd_analyze,
                        wheel,
                        load_generator,
                    ),
                )
            ),
        )
