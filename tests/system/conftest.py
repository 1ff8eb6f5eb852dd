"""Servers for system tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from server_process import ServedProcess

# A small store: its files are created in no time, and rolled in tests. By default a send that has waited for 200 ms is refused, as some
# have where the machine is busy with other things.
SMALL = {"mappedFileSizeCommitLog": 64 * 1024 * 1024, "maxIndexNum": 200_000, "waitTimeMillsInSendQueue": 60_000}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServedProcess]]:
    """Starts servers that do not outlive the test: `serve("name", settings={...})`."""
    started: list[ServedProcess] = []

    def start(name: str = "server", **options: object) -> ServedProcess:
        small = {} if options.get("command") == "nameserver" else SMALL
        settings = {**small, **options.pop("settings", {})}  # type: ignore[dict-item]
        process = ServedProcess(tmp_path / name, settings=settings, **options)  # type: ignore[arg-type]
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """One server for the tests of a module, stopped in order at its end whatever they did to it."""
    # Its tests look for the line of every single mistake.
    process = ServedProcess(tmp_path_factory.mktemp("server"), settings={**SMALL, "logRepeatsMax": 1_000_000})
    try:
        yield process
        process.stop()
    finally:
        process.kill()
