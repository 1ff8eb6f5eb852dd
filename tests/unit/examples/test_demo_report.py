"""The report of the demo: what is drawn, and the verdict."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

pytest.importorskip("pyspark", reason="PySpark is not installed; it comes with the extra 'spark'")

from examples.order_timeout.orders import State
from examples.order_timeout_spark.books import Difference, Total
from examples.order_timeout_spark.figures import Figures, Lateness
from examples.order_timeout_spark.report import bar, line, print_report, print_verdict

FIGURES = Figures(
    by_topic={"order-timeouts": Lateness(4, 0.0, 1.25, 9.5, 1_234.5)},
    late_messages={0: 3, 5: 1},
    decided_after={"paid": Lateness(3, 100.0, 700.0, 900.0, 901.0)},
    by_second={"paid": {0: 1, 2: 2}, "cancelled": {3: 4}},
    busiest_second=3,
)


def printed(**changes: object) -> str:
    shown = io.StringIO()
    arguments: dict[str, object] = {
        "figures": FIGURES,
        "states": {State.PAID: 3, State.CANCELLED: 1},
        "computed": {State.PAID: 3, State.CANCELLED: 1},
        "totals": {"paid": Total(3, 4_200)},
        "rates": [("time-outs in the busiest second", "3")],
        **changes,
    }
    print_report(Console(file=shown, width=140), **arguments)  # type: ignore[arg-type]
    return shown.getvalue()


def test_it_shows_lateness_states_totals_and_throughput() -> None:
    text = printed()
    assert "1.2" in text
    assert "1,234.5" in text
    assert "42.00" in text
    assert "time-outs in the busiest second" in text
    assert "DIFFERENT" not in text


def test_a_state_that_differs_is_marked() -> None:
    assert printed(states={State.PAID: 2, State.CANCELLED: 1, None: 1}).count("DIFFERENT") == 2


def test_bars_are_as_long_as_their_share_and_nothing_has_none() -> None:
    assert [len(bar(count, 1_000, "#")) for count in (0, 1, 500, 1_000)] == [0, 1, 20, 40]


def test_a_line_has_a_character_for_each_second_the_higher_the_more() -> None:
    assert line({1: 1, 3: 8}, 0, 4, " 12345678") == " 1 8 "


def test_lateness_is_drawn_from_the_first_span_to_the_last() -> None:
    drawn = [row for row in printed().splitlines() if "ms and more" in row]
    assert [row.split()[0] for row in drawn] == ["0", "1", "2", "5"]


def test_a_message_that_came_early_has_a_bar_of_its_own() -> None:
    early = Figures(FIGURES.by_topic, {-1: 1, 0: 3}, FIGURES.decided_after, FIGURES.by_second, 3)
    assert any(row.split()[:2] == ["early", "1"] for row in printed(figures=early).splitlines())


def test_the_verdict_names_every_difference() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=140)
    print_verdict(console, [], 4, 61.2)
    assert shown.getvalue() == (
        "4 orders in 61 s: every order, amount and instant as computed by hand; nothing early, lost or doubled\n"
    )
    print_verdict(console, [Difference("time-outs that never came", 2, ("UA1-0101-EWR",))], 4, 61.2)
    assert shown.getvalue().endswith(
        "4 orders in 61 s: DIFFERENT from the computation by hand\n  2 time-outs that never came (UA1-0101-EWR ...)\n"
    )
