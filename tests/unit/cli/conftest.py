"""A command line under test, and a server that answers from a script."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted_server import Ran, ScriptedServer

from orbitmq.cli.main import main

VARIABLES = (
    "ORBITMQ_TLS",
    "ORBITMQ_NAMESRV",
    "ORBITMQ_CONTEXT",
    "NAMESRV_ADDR",
    "ORBITMQ_OUTPUT",
    "ORBITMQ_DATA",
    "ORBITMQ_CONFIG",
)


@pytest.fixture
def orbitmq(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ran]:
    """Run the command line in this process, without any of the caller's settings."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr("sys.argv", ["orbitmq", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """A scripted name server and broker on one port."""
    scripted = ScriptedServer()
    yield scripted
    scripted.close()
