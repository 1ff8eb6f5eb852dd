"""`orbitmq` whose files are recorded: `recorded_broker.py DATA TARGET broker --data DATA ...`.

At SIGUSR2 power fails: what the disk is sure to hold then is written to TARGET, and the process is gone. Of everything that was not
synced nothing survives.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path
from types import FrameType

import rigpath  # noqa: F401

# isort: split
from tests.worlds.faults import RecordingFiles

from orbitmq.cli.main import main
from orbitmq.server import lifecycle
from orbitmq.store.files import Files, OsFiles


def record(data: Path, target: Path) -> None:
    """Let the server that is started next in this process use recorded files, and end at the signal."""
    data.mkdir(parents=True, exist_ok=True)
    files = RecordingFiles(OsFiles(), data, boot=f"boot of {os.getpid()}")

    def recorded() -> Files:
        return files

    def fail(_signal: int, _frame: FrameType | None) -> None:
        files.killed = True
        files.power_cut(target, random.Random(0), keep=0.0)
        os.kill(os.getpid(), signal.SIGKILL)

    lifecycle.OsFiles = recorded  # type: ignore[assignment, misc]
    signal.signal(signal.SIGUSR2, fail)


if __name__ == "__main__":
    record(Path(sys.argv[1]), Path(sys.argv[2]))
    del sys.argv[1:3]
    sys.exit(main())
