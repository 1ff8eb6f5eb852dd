"""`orbitmq worker`: what it does beside running handlers. A worker that runs: `test_serve`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from orbitmq.cli.servers.workers import there_while_ready
from orbitmq.cli.shared.exit_codes import ExitCode


def test_the_file_of_a_worker_that_was_killed_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    file.touch()
    with there_while_ready(file) as on_ready:
        assert not file.exists()
        assert on_ready is not None
        on_ready()
        assert file.exists()
    assert not file.exists()


def test_without_a_file_there_is_nothing_to_tell() -> None:
    with there_while_ready(None) as on_ready:
        assert on_ready is None


HELD = """
import pathlib, signal, sys, time
from orbitmq.cli.servers import workers

workers.WORKER_END_S = 0.1
signal.signal(signal.SIGTERM, lambda *_: None)  # of a loop that does not turn
with workers.SureEnd(0, pathlib.Path(sys.argv[1])) as end:
    end.watch_signals()
    signal.raise_signal(signal.SIGTERM)
    time.sleep(60)
"""


def test_a_worker_whose_handler_holds_the_loop_ends_in_bounded_time(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    file.touch()
    done = subprocess.run(
        [sys.executable, "-c", HELD, str(file)], capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, file.exists()) == (ExitCode.GIVEN_UP, False), done.stderr
    assert "the worker ends all the same" in done.stderr
