"""RocketMQ's own administration tool, many commands in one JVM."""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType

from rig.drivers import Driver, mqadmin_driver
from rig.toolchain import BROKER_VERSION

_LOGGING = re.compile(r"RocketMQLog:|SLF4J|\d\d:\d\d:\d\d,\d{3} \|-")
"""Lines about the set-up of logging, which the first command prints."""

_FAILURE = re.compile(r"^(?:raised: |[\w.$]+(?:Exception|Error)(?:: |$))", re.MULTILINE)
"""How a line begins that tells of an exception."""


class MqAdmin:
    """mqadmin at one name server.

    A command's output is what it prints; a failure is printed as well, with its stack trace. Lines of its logging set-up
    are left out.
    """

    def __init__(self, name_server: str, folder: Path, version: str = BROKER_VERSION) -> None:
        self._driver: Driver = mqadmin_driver(name_server, folder, version)

    def __enter__(self) -> MqAdmin:
        self._driver.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._driver.__exit__(kind, error, trace)

    def run(self, *words: str) -> str:
        """The output of one command; fails when it raised or printed an error of the tool."""
        text = self.try_run(*words)
        assert not _FAILURE.search(text), f"mqadmin {' '.join(words)}:\n{text}"
        return text

    def try_run(self, *words: str) -> str:
        """The output of one command, whatever it is."""
        (output,) = [e for e in self._driver.command("run", words="\n".join(words)) if e["event"] == "output"]
        lines = str(output["text"]).splitlines()
        return "\n".join(line for line in lines if not _LOGGING.match(line))

    def rows(self, *words: str) -> list[list[str]]:
        """The columns of each line that `run` gives, the lines with a `#` heading or without text left out."""
        return [line.split() for line in self.run(*words).splitlines() if line.strip() and not line.startswith("#")]
