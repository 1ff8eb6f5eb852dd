"""What people type for instants and spans, and what they read."""

from __future__ import annotations

import pytest
import typer

from orbitmq.cli.shared.instants import instant, parse_due_ms, parse_instant_ms, parse_span_ms, span

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("now", NOW),
        ("1699999999999", 1_699_999_999_999),
        ("10m", NOW - 600_000),
        ("2d", NOW - 2 * 86_400_000),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T22:13:20.250+00:00", NOW + 250),
        ("2023-11-14T23:13:20+01:00", NOW),
    ],
)
def test_instants(text: str, at_ms: int) -> None:
    assert parse_instant_ms("--since", text, NOW) == at_ms


@pytest.mark.parametrize("text", ["", "soon", "10x", "2023-13-01", "-5m", "99999-01-01", "٣"])
def test_what_is_no_instant_is_a_usage_error(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--since"):
        parse_instant_ms("--since", text, NOW)


@pytest.mark.parametrize(("text", "ms"), [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000)])
def test_spans_there_and_back(text: str, ms: int) -> None:
    assert parse_span_ms("--every", text) == ms
    assert span(ms) == text


@pytest.mark.parametrize("at_ms", [NOW + 7, 4_375_244_454_749, 139_394_074_946_873, 253_402_300_799_999])
def test_what_is_printed_can_be_typed(at_ms: int) -> None:
    """To the millisecond, in every year."""
    assert parse_instant_ms("--since", instant(at_ms), 0) == at_ms


def test_a_span_of_a_due_time_is_from_now_on() -> None:
    assert parse_due_ms("--at", "10m", NOW) == NOW + 600_000
    with pytest.raises(typer.BadParameter, match=r"10m \(from now on\)"):
        parse_due_ms("--at", "-10m", NOW)


def test_a_span_before_the_epoch_is_the_epoch() -> None:
    assert parse_instant_ms("--since", "9999999d", NOW) == 0
