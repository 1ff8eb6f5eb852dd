"""Plots whatever they have to show."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("matplotlib", reason="plots need the extra orbitmq[spark]")

from matplotlib.figure import Figure

from orbitmq.spark.pipelines.reporting.plots import _time_axis

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
