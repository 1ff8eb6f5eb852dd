"""The Java program that the README prints, as printed, on both client versions."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rig.brokers import BrokerUnderTest, Kind
from rig.drivers import JVM_FLAGS
from rig.toolchain import BROKER_VERSION, OLD_CLIENT_VERSION, REPOSITORY, java_build

pytestmark = pytest.mark.java

DELAY_S = 10.0
LATE_S = 10.0
LIMIT_S = 180


@pytest.mark.parametrize("version", [OLD_CLIENT_VERSION, BROKER_VERSION])
def test_the_printed_program_works(
    version: str,
    brokers: Callable[..., BrokerUnderTest],
    tmp_path: Path,
    available: Callable[[Callable[[], object]], None],
) -> None:
    available(lambda: java_build(version))
    broker = brokers(Kind.ORBITMQ, "server").start()
    build = java_build(version)
    (text,) = re.findall(r"^```java\n(.*?)^```", (REPOSITORY / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert text.count("localhost:9876") == 2
    source = tmp_path / "Classic.java"
    source.write_text(text.replace("localhost:9876", broker.name_server))
    with (tmp_path / "errors").open("w") as errors:
        program = subprocess.Popen(
            [str(build.java), *JVM_FLAGS, f"-Duser.home={tmp_path}", "-cp", build.classpath, str(source)],
            stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path,
        )  # fmt: skip
        watchdog = threading.Timer(LIMIT_S, program.kill)  # it runs until it is stopped
        watchdog.start()
        try:
            assert program.stdout is not None
            printed = iter(program.stdout.readline, "")  # the 5.x client also prints lines of its logging there
            assert "SEND_OK\n" in printed, (tmp_path / "errors").read_text()
            answered = time.monotonic()
            assert "This is a delay message.\n" in printed, (tmp_path / "errors").read_text()
            # Counted from the answer, which came a little after the broker had accepted the message.
            assert DELAY_S - 0.5 < time.monotonic() - answered < DELAY_S + LATE_S
        finally:
            watchdog.cancel()
            program.kill()
            program.wait()
            program.stdout.close()
