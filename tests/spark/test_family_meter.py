"""The CPU meter of the Spark comparison: what ended is counted, whoever waited for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks" / "spark"))

from family_meter import FamilyMeter

BURN_S = 0.6
SLACK_S = 0.25
"""The last look at a process that ends, and the ticks of the counters."""

BURNER = """
import os, signal, sys, time
if {forgetful}:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as PySpark's worker daemon does
child = os.fork()
if not child:
    while time.process_time() < {burn}:
        pass
    os._exit(0)
try:
    os.waitpid(child, 0)
except ChildProcessError:
    pass  # the kernel has taken it away, and its time with it
print("over", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("forgetful", [False, True], ids=["parent waits", "parent ignores it"])
def test_cpu_of_a_worker_that_ended_counts_once(forgetful: bool) -> None:
    code = BURNER.format(forgetful=forgetful, burn=BURN_S)
    with (
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as process,
        FamilyMeter(process.pid) as meter,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"over\n"
        found = meter.cpu_s()
        process.stdin.close()
    own = 0.1  # of the parent's start
    assert BURN_S - SLACK_S < found < BURN_S + SLACK_S + own


def test_a_process_of_another_session_is_not_family() -> None:
    code = "import sys, time\nwhile time.process_time() < 0.3:\n    pass\nprint('over', flush=True)\nsys.stdin.read()"
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True) as family,
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        ) as stranger,
        FamilyMeter(family.pid) as meter,
    ):
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == b"over\n"
        assert meter.cpu_s() < 0.25
        for process in (family, stranger):
            assert process.stdin is not None
            process.stdin.close()
