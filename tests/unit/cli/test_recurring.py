"""`orbitmq recurring`: previews, and what the other commands refuse themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pytest
from scripted_server import Ran

from orbitmq.cli.timers import recurring

Run = Callable[..., Ran]


def test_a_preview_shows_both_clocks_over_a_change(orbitmq: Run) -> None:
    ran = orbitmq(
        "recurring", "preview", "30 2 * * *", "--zone", "Europe/Berlin", "--count", 3, "--after", "2026-03-28T00:00"
    )
    assert (ran.code, ran.err) == (0, "")
    assert [line.split() for line in ran.out.splitlines()] == [
        ["utc", "local", "day"],
        ["2026-03-28T01:30:00.000Z", "2026-03-28T02:30:00+01:00", "Sat"],
        ["2026-03-29T01:00:00.000Z", "2026-03-29T03:00:00+02:00", "Sun"],
        ["2026-03-30T00:30:00.000Z", "2026-03-30T02:30:00+02:00", "Mon"],
    ]


def test_jitter_shows_until_when_a_run_may_wait(orbitmq: Run) -> None:
    ran = orbitmq(
        "recurring", "preview", "*/10 * * * *", "--count", 1, "--after", "2026-01-01T00:00Z", "--jitter", "1h", "--json"
    )
    assert json.loads(ran.out) == [
        {
            "planned_ms": 1767226200000,
            "utc": "2026-01-01T00:10:00.000Z",
            "local": "2026-01-01T00:10:00+00:00",
            "day": "Thu",
            "latest_ms": 1767226799999,
            "latest_utc": "2026-01-01T00:19:59.999Z",  # always before the next run
        }
    ]
    assert "latest utc" in orbitmq("recurring", "preview", "0 * * * *", "--jitter", "1m").out


def test_an_interval_from_its_start_to_its_end(orbitmq: Run) -> None:
    options = (
        "--start",
        "2027-01-01T00:00",
        "--end",
        "2027-01-04T00:00",
        "--zone",
        "Asia/Kolkata",
        "--after",
        "2026-01-01",
    )
    ran = orbitmq("recurring", "preview", "--every", "36h", *options)
    assert [line.split()[1] for line in ran.out.splitlines()[1:]] == [
        "2027-01-01T00:00:00+05:30",
        "2027-01-02T12:00:00+05:30",
    ]
    assert ran.err == "no further runs\n"


def test_a_rule_that_is_over_has_no_run(orbitmq: Run) -> None:
    ran = orbitmq("recurring", "preview", "* * * * *", "--end", "2020-01-01")
    assert (ran.code, ran.out, ran.err) == (0, "", "no run\n")
    assert orbitmq("recurring", "preview", "* * * * *", "--end", "2020-01-01", "--json").out == "[]\n"


def test_ten_runs_from_now_unless_told_otherwise(orbitmq: Run) -> None:
    assert len(json.loads(orbitmq("recurring", "preview", "* * * * *", "--json").out)) == 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["0 0 30 2 *"], "none of the months has such a day"),
        (["0 0 * *"], "it has not five fields"),
        (["* * * * *", "--zone", "Europe/Atlantis"], "'Europe/Atlantis' is not in the table of time zones"),
        (["* * * * *", "--every", "1h"], "both given"),
        ([], "neither given"),
        (["--every", "10ms"], "RECURRENCE_INTERVAL_MS_MIN = 1000"),
        (["--every", "soon"], "--every 'soon' is no span of time"),
        (["* * * * *", "--after", "soon"], "--after 'soon' is no instant"),
        (["* * * * *", "--jitter", "2d"], "RECURRENCE_JITTER_MS_MAX = 86400000"),
        (["* * * * *", "--start", "2027-01-02", "--end", "2027-01-01"], "is not later than start_ms"),
        (["* * * * *", "--count", "1001"], "1001"),
    ],
)
def test_what_cannot_be_is_one_line_with_the_reason(orbitmq: Run, words: list[str], said: str) -> None:
    ran = orbitmq("recurring", "preview", *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


# --- commands about those that a broker keeps


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "give one of --cron and --every"),
        (("--cron", "0 9 * * *", "--every", "1h"), "give one of --cron and --every"),
        (("--every", "soon"), "--every 'soon' is no span of time"),
        (("--every", "1h", "--start", "someday"), "--start 'someday' is no"),
        (("--every", "1h", "--overlap", "forbid"), "'forbid' is not one of"),
        (("--every", "1h", "--catch-up-max", "5000"), "--catch-up-max"),
        (("--every", "1h", "--property", "colour"), "--property 'colour' is not NAME=VALUE"),
    ],
)
def test_what_cannot_be_put_asks_no_server(orbitmq: Run, words: tuple[str, ...], text: str) -> None:
    ran = orbitmq("recurring", "put", "name", "Topic", "body", *words)
    assert ran.code == 2
    assert text in ran.err.replace("\n", " ")


def test_a_zone_that_does_not_exist_asks_no_server(orbitmq: Run) -> None:
    ran = orbitmq("recurring", "put", "name", "Topic", "body", "--cron", "0 9 * * *", "--zone", "Europe/Nowhere")
    assert ran.code == 2
    assert "time zone 'Europe/Nowhere'" in ran.err


def test_instants_lie_ahead_and_go_by_the_clock_of_the_zone() -> None:
    info, now_ms = ZoneInfo("Europe/Berlin"), 1_767_225_600_000
    assert recurring._ahead_ms("--start", "2026-07-01T09:00", now_ms, info) == 1_782_889_200_000
    assert recurring._ahead_ms("--start", "2026-07-01T09:00:00Z", now_ms, info) == 1_782_896_400_000
    assert recurring._ahead_ms("--start", "10m", now_ms, info) == now_ms + 600_000
    assert recurring._ahead_ms("--start", "now", now_ms, info) == now_ms
    assert recurring._ahead_ms("--start", "1782889200000", now_ms, info) == 1_782_889_200_000


def test_intervals_are_shown_exactly() -> None:
    assert [recurring._exactly(ms) for ms in (1_000, 90_000, 7_200_000, 172_800_000, 1_500)] == [
        "1s", "90s", "2h", "2d", "1500ms",
    ]  # fmt: skip
