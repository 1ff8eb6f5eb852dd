"""The page stands alone, shows every figure that matters, and trusts no name."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib", reason="plots need the extra orbitmq[spark]")

from orbitmq.spark.pipelines.reporting import plots
from orbitmq.spark.pipelines.reporting.cells import Cell, MessageClass
from orbitmq.spark.pipelines.reporting.figures import Figures, figures
from orbitmq.spark.pipelines.reporting.page import ROWS_SHOWN, page
from orbitmq.units import HOUR_MS

AT = 1_795_000_000_000 // HOUR_MS * HOUR_MS
NASTY = "<script>alert('$x$')</script>"


def some(*more: Cell) -> Figures:
    cells = [
        Cell("orders", AT, MessageClass.TIMED, 3, 90, 900, 3, 0),
        Cell("orders", AT + HOUR_MS, MessageClass.TIMED, 1_000, 10, 100, 1_003, 0),
        Cell("%RETRY%billing", AT, MessageClass.RETRY, 0, 5, 0, 0, 2),
        Cell("%DLQ%billing", AT, MessageClass.DEAD, 0, 2, 0, 0, 16),
    ]
    return figures([*cells, *more], HOUR_MS)


def shown(found: Figures) -> str:
    return page("Report", "A test", AT, found)


class Words(HTMLParser):
    """The text of a page, and what it would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = ""
        self.dangerous: list[str] = []
        self.plots = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.plots += tag == "svg"
        loads = [
            name for name, value in attrs if name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
        ]
        if tag in ("script", "iframe", "img", "link", "object") or loads:
            self.dangerous.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def test_it_shows_the_figures_and_a_plot_for_each_part() -> None:
    words = Words(shown(some()))
    for wanted in ("100", "3 ms", "1 s", "billing", "orders", "too early", "never", "16"):
        assert wanted in words.text, wanted
    assert words.plots == 3


def test_it_loads_nothing_and_runs_nothing_whatever_a_topic_is_called() -> None:
    text = shown(some(Cell(NASTY, AT, MessageClass.TIMED, 1, 1, 1, 1, 0)))
    words = Words(text)
    assert words.dangerous == []
    assert NASTY in words.text
    assert "url(http" not in text
    assert not re.search(r"@import", text)


def test_early_messages_raise_an_alarm() -> None:
    early = Cell("orders", AT, MessageClass.EARLY, 0, 3, 0, -7, 0)
    assert "tile alarm" not in shown(figures([Cell("a", AT, MessageClass.TIMED, 1, 1, 1, 1, 0)], HOUR_MS))
    text = shown(figures([early], HOUR_MS))
    assert "tile alarm" in text
    assert "by up to 7 ms" in Words(text).text


def test_an_empty_report_says_so() -> None:
    words = Words(shown(figures([], HOUR_MS)))
    assert "No message had a due time." in words.text
    assert words.plots == 0


def test_a_long_table_says_what_it_leaves_out() -> None:
    many = [Cell(f"t{number:03}", AT, MessageClass.TIMED, 0, 1, 1, 0, 0) for number in range(ROWS_SHOWN + 7)]
    assert "7 more lines" in Words(shown(figures(many, HOUR_MS))).text


def test_the_same_figures_give_the_same_page() -> None:
    assert shown(some()) == shown(some())


@pytest.mark.parametrize(
    ("value_ms", "words"),
    [(0, "0 ms"), (12, "12 ms"), (1_500, "1.5 s"), (180_000, "3 min"), (7_200_000, "2 h"), (86_400_000 * 4, "4 d")],
)
def test_durations_read_well(value_ms: int, words: str) -> None:
    assert plots.duration(value_ms) == words
