"""Servers as their units of systemd start them, with somebody who hears what a supervisor would."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from server_process import clean_environment
from tests.unit.deploy.supervisors import DEPLOY, unit

HEARD_LIMIT_S: Final = 60.0
NAMES: Final = {"broker": "broker.conf", "nameserver": "namesrv.conf"}


class Supervised:
    """The process of `orbitmq-NAME.service`, with files in `folder` instead of /etc and /var; on what an earlier one left there."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, object]) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (folder / NAMES[name]).write_text(text, encoding="utf-8")
        self.service = unit(DEPLOY / "systemd" / f"orbitmq-{name}.service")
        self._hearer = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._hearer.settimeout(HEARD_LIMIT_S)
        address = f"orbitmq-{uuid.uuid4()}"
        self._hearer.bind(f"\0{address}")
        self.words: Final = self._here(self.service["ExecStart"])
        self._environment = clean_environment() | {"NOTIFY_SOCKET": f"@{address}"}
        with (folder / "output").open("ab") as output:
            self.process = subprocess.Popen(self.words, env=self._environment, stdout=output, stderr=output)

    def _here(self, line: str) -> list[str]:
        words: list[str] = []
        for word in shlex.split(line):
            if word == "/opt/orbitmq/bin/orbitmq":
                words += [sys.executable, "-m", "orbitmq.cli.main"]
            elif word == "$MAINPID":
                words.append(str(self.process.pid))
            else:
                place = Path(word)
                is_ours = word.startswith(("/etc/orbitmq/", "/var/lib/orbitmq-"))
                words.append(str(self.folder / place.name) if is_ours else word)
        return words

    def heard(self) -> Sequence[str]:
        """The lines of the next message."""
        try:
            return self._hearer.recv(4096).decode().split("\n")
        except TimeoutError:
            raise AssertionError(f"nothing was heard of {self.words}\n{self.output()}") from None

    def output(self) -> str:
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    def again(self) -> subprocess.CompletedProcess[str]:
        """The same once more, while the first runs."""
        return subprocess.run(
            self.words, env=clean_environment(), capture_output=True, text=True, timeout=120, check=False
        )

    def reload(self) -> None:
        subprocess.run(self._here(self.service["ExecReload"]), check=True, timeout=30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._hearer.close()
