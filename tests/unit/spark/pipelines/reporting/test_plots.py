"""Plots whatever they have to show."""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("matplotlib", reason="plots need the extra orbitmq[spark]")

import matplotlib
from matplotlib.figure import Figure

from orbitmq.spark.pipelines.reporting.plots import _svg, _time_axis

BEGIN = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
LENGTHS = [timedelta(seconds=1.1**power) for power in range(210)]
"""From a second to some twenty years."""


def test_an_axis_of_time_finds_its_ticks_whatever_it_spans() -> None:
    for length in LENGTHS:
        axes = Figure().subplots()
        _time_axis(axes)
        axes.set_xlim(BEGIN, BEGIN + length)  # type: ignore[arg-type]  # matplotlib takes times
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ticks = axes.xaxis.get_majorticklocs()
        assert 2 <= len(ticks) <= 11, length


def test_reports_that_are_made_at_the_same_time_do_not_draw_with_each_other_s_settings() -> None:
    """A service may have two jobs of one timetable; matplotlib has one set of settings for all threads."""
    drawing: list[str] = []
    before = dict(matplotlib.rcParams)

    def draw(axes: object) -> None:
        drawing.append("begun")
        time.sleep(0.02)
        drawing.append("ended")

    with ThreadPoolExecutor(4) as threads:
        texts = {future.result() for future in [threads.submit(_svg, draw) for _ in range(8)]}
    assert drawing == ["begun", "ended"] * 8
    assert len(texts) == 1
    assert dict(matplotlib.rcParams) == before
