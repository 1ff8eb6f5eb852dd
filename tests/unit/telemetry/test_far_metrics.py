"""Metrics of the far tier, over a real one: what they say is what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.worlds.little_far import DAY_MS, HOUR_MS, LittleFar

from orbitmq.telemetry.far_metrics import FarMetrics
from orbitmq.timing.far.arrow_tier import ArrowTier


def read(far: LittleFar) -> dict[str, Any]:
    return {
        family.metric.name.removeprefix("orbitmq_far_"): family.samples[0].value
        for family in FarMetrics(far.far, far.clock)()
    }


def test_messages_in_the_log_in_files_and_in_the_wheel(tmp_path: Path) -> None:
    far = LittleFar(tmp_path / "store", ArrowTier(str(tmp_path / "far")))
    far.send(far.clock.now_ms() + 10 * DAY_MS)
    far.clock.advance(60_000)
    said = read(far)
    assert (said["in_log_messages"], said["files"], said["landing_age_seconds"]) == (1, 0, 60)
    far.advance(HOUR_MS)
    said = read(far)
    assert (said["in_log_messages"], said["files"], said["landed_total"], said["landing_age_seconds"]) == (0, 1, 1, 0)
    assert (said["trouble"], said["damaged_files"], said["promotion_lag_seconds"]) == (0, 0, 0)
    far.advance(8 * DAY_MS)
    said = read(far)
    assert (said["files"], said["promoted_total"]) == (0, 1)


def test_a_tier_out_of_reach_is_trouble(tmp_path: Path) -> None:
    (tmp_path / "far").write_bytes(b"no directory")
    far = LittleFar(tmp_path / "store", ArrowTier(str(tmp_path / "far")))
    far.send(far.clock.now_ms() + 10 * DAY_MS)
    far.advance(HOUR_MS)
    said = read(far)
    assert said["trouble"] == 1
    assert said["failures_total"] > 0
    (tmp_path / "far").unlink()
    far.advance(HOUR_MS)
    assert read(far)["trouble"] == 0


def test_a_damaged_file_is_counted_and_its_messages_are_behind(tmp_path: Path) -> None:
    far = LittleFar(tmp_path / "store", ArrowTier(str(tmp_path / "far")))
    far.send(far.clock.now_ms() + 10 * DAY_MS)
    far.advance(HOUR_MS)
    far.close()
    [path] = (tmp_path / "far" / "landing").iterdir()
    path.write_bytes(b"PAR1 no parquet file PAR1")
    again = LittleFar(tmp_path / "store", ArrowTier(str(tmp_path / "far")), clock=far.clock)
    again.advance(8 * DAY_MS)
    said = read(again)
    assert said["damaged_files"] == 1
    assert said["promotion_lag_seconds"] >= 23 * 3_600
