"""Lines of the log: their forms, their levels, and the bound on repetitions."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from orbitmq.telemetry.logs import BoundedHandler, JsonFormatter, TextFormatter, begin_logging


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    for name in ("orbitmq.quiet", "orbitmq.loud"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def record(text: str, *values: object, at_s: float = 1_000.0, level: int = logging.WARNING) -> logging.LogRecord:
    made = logging.LogRecord("orbitmq.test", level, "", 0, text, values, None)
    made.created = at_s
    return made


def bounded(repeats_max: int = 3) -> tuple[BoundedHandler, io.StringIO]:
    stream = io.StringIO()
    handler = BoundedHandler(stream, repeats_max=repeats_max, window_ms=10_000)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    return handler, stream


def test_a_flood_of_one_wording_is_counted_and_reported() -> None:
    handler, stream = bounded()
    for number in range(1_000):
        handler.handle(record("%s sent rubbish", f"peer {number}"))
    assert stream.getvalue().splitlines() == [f"WARNING peer {number} sent rubbish" for number in range(3)]
    handler.handle(record("something else", at_s=1_010.0))
    assert stream.getvalue().splitlines()[3:] == [
        "WARNING 997 more lines like this were left out: %s sent rubbish",
        "WARNING something else",
    ]
    assert handler.left_out == 997
    assert handler.lines == {"WARNING": 5}


def test_another_wording_is_not_held_back() -> None:
    handler, stream = bounded()
    for _ in range(100):
        handler.handle(record("noise"))
    handler.handle(record("the disk is full"))
    assert stream.getvalue().splitlines()[-1] == "WARNING the disk is full"


def test_after_the_window_lines_are_written_again() -> None:
    handler, stream = bounded()
    for second in range(40):
        handler.handle(record("tick", at_s=1_000.0 + second))
    lines = stream.getvalue().splitlines()
    assert lines.count("WARNING tick") == 4 * 3
    assert lines.count("WARNING 7 more lines like this were left out: tick") == 3


def test_a_clock_that_is_set_back_begins_a_new_window() -> None:
    handler, stream = bounded()
    for _ in range(5):
        handler.handle(record("tick"))
    handler.handle(record("tick", at_s=10.0))
    assert stream.getvalue().splitlines()[-1] == "WARNING tick"


def test_the_end_reports_what_was_left_out() -> None:
    handler, stream = bounded()
    for _ in range(5):
        handler.handle(record("tick"))
    handler.close()
    assert stream.getvalue().splitlines()[-1] == "WARNING 2 more lines like this were left out: tick"
    assert not stream.closed


def test_wordings_are_bounded() -> None:
    handler, _ = bounded()
    for number in range(10_000):
        handler.handle(record(f"made by hand {number}"))
    assert len(handler._windows) <= 1_025
    assert handler.left_out > 8_000


@pytest.mark.parametrize("named", ["a\nERROR forged", "a\r", "\x1b[31mred", "\x85", "\u2028", "\u202e"])
def test_what_clients_named_does_not_leave_its_line(named: str) -> None:
    line = TextFormatter().format(record("client %s has gone", named))
    assert line.isprintable()
    assert line.endswith(f"WARNING orbitmq.test client {named.encode('unicode_escape').decode()} has gone")


def test_a_traceback_has_lines_of_its_own() -> None:
    try:
        raise RuntimeError("a defect")
    except RuntimeError as error:
        made = record("failed")
        made.exc_info = (type(error), error, error.__traceback__)
    assert TextFormatter().format(made).splitlines()[-1] == "RuntimeError: a defect"


def test_a_line_of_json_keeps_its_fields() -> None:
    line = json.loads(JsonFormatter().format(record("%s is %d ms late", "peer \ud800", 7)))
    assert line == {
        "time": "1970-01-01T00:16:40.000+00:00",
        "level": "WARNING",
        "logger": "orbitmq.test",
        "event": "%s is %d ms late",
        "message": "peer ? is 7 ms late",
        "values": ["peer ?", 7],
    }


def test_a_caller_may_name_the_event() -> None:
    made = record("%s", "whatever was found")
    made.event = "recovery"
    assert json.loads(JsonFormatter().format(made))["event"] == "recovery"


def test_a_traceback_is_a_field() -> None:
    try:
        raise RuntimeError("a defect")
    except RuntimeError as error:
        made = record("failed")
        made.exc_info = (type(error), error, error.__traceback__)
    line = json.loads(JsonFormatter().format(made))
    assert line["traceback"].endswith("RuntimeError: a defect")


def test_levels_for_everything_and_for_parts() -> None:
    stream = io.StringIO()
    handler = begin_logging("text", ["WARNING", "loud=DEBUG", "orbitmq.quiet=ERROR"], stream)
    logging.getLogger("orbitmq.other").info("left out")
    logging.getLogger("orbitmq.loud.part").debug("told")
    logging.getLogger("orbitmq.quiet").warning("left out")
    handler.flush()
    assert [line.split(" ", 2)[2] for line in stream.getvalue().splitlines()] == ["DEBUG orbitmq.loud.part told"]
