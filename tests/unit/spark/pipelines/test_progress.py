"""Progress as lines for programs and bars for people."""

from __future__ import annotations

import io
import json

from orbitmq.clock import ManualClock
from orbitmq.spark.pipelines.progress import BarProgress, LineProgress, progress_on


def test_a_line_a_second_and_one_at_the_end() -> None:
    stream, clock = io.StringIO(), ManualClock()
    with LineProgress(stream, clock).stage("archive", 100) as stage:
        clock.advance(500)
        stage.advance(10)
        clock.advance(500)
        stage.advance(20, size_bytes=7)
        clock.advance(200)
        stage.advance(5, lag=3)
        clock.advance(800)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["rows"], line["lag"], line["seconds"], line["done"]) for line in lines] == [
        (30, 70, 1.0, False),
        (35, 3, 2.0, True),
    ]
    assert lines[0] == {
        "stage": "archive", "rows": 30, "total_rows": 100, "rows_per_second": 30, "size_bytes": 7, "lag": 70,
        "seconds": 1.0, "done": False,
    }  # fmt: skip


def test_a_stage_that_failed_is_not_done() -> None:
    stream = io.StringIO()
    try:
        with LineProgress(stream, ManualClock()).stage("archive"):
            raise OSError
    except OSError:
        pass
    line = json.loads(stream.getvalue())
    assert (line["done"], line["total_rows"], line["lag"]) == (False, None, None)


def test_bars_show_rows_and_what_is_left() -> None:
    stream = io.StringIO()
    progress = BarProgress(stream)
    with progress.stage("archive", 1_000) as outer, progress.stage("another") as inner:
        outer.advance(250)
        inner.advance(7)
    shown = stream.getvalue()
    assert "250 of 1,000 rows" in shown
    assert "750 left" in shown
    assert "7 of 7 rows" in shown


def test_what_is_no_terminal_gets_lines() -> None:
    assert isinstance(progress_on(io.StringIO()), LineProgress)
