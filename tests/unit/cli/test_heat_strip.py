"""The strip of due times."""

from __future__ import annotations

import pytest

from orbitmq.cli.timers.heat_strip import WIDTHS_MS, Strip, strip, width_for


def test_the_fullest_span_is_full_and_one_message_is_seen() -> None:
    assert Strip(0, 1, (0, 1, 400, 800)).drawn() == "·▁▄█"
    assert Strip(0, 1, (1_000_000, 1)).drawn() == "█▁"
    assert Strip(0, 1, (0, 0)).drawn() == "··"
    assert Strip(0, 1, tuple(range(9))).drawn() == "·▁▂▃▄▅▆▇█"


def test_counts_fall_into_their_spans() -> None:
    found = strip(25_000, 61_000, 10_000, [(20_000, 1), (39_999, 2), (30_000, 1), (60_000, 5), (70_000, 9), (0, 9)])
    assert found == Strip(20_000, 10_000, (1, 3, 0, 0, 5))
    assert found.end_ms == 70_000


@pytest.mark.parametrize(
    ("length_ms", "width_ms"), [(1_000, 1_000), (60_000, 1_000), (3_600_000, 60_000), (86_400_000, 1_800_000)]
)
def test_a_width_that_people_reckon_in(length_ms: int, width_ms: int) -> None:
    assert width_for(length_ms, 96) == width_ms


@pytest.mark.parametrize("length_ms", [1, 999, 94_999, 95_000, 95_001, 10**12, 253_402_300_799_999])
def test_a_strip_never_has_more_spans_than_there_is_room_for(length_ms: int) -> None:
    width_ms = width_for(length_ms, 96)
    for begin_ms in (0, 1, width_ms - 1):
        assert len(strip(begin_ms, begin_ms + length_ms, width_ms, []).counts) <= 96
    assert sorted(WIDTHS_MS) == list(WIDTHS_MS)
