"""The log of a server: one line an event, as text for people or as JSON for programs, and never a flood.

A line's *wording* is its text before the values are filled in. It is what stays the same, so JSON lines carry it as
`event` (unless the caller names the event itself), and repetitions are counted by it.

Rules of this file
1. A wording gets `LOG_REPEATS_MAX` lines in `LOG_WINDOW_MS`, or the `repeats_max` that its record brings along if that is more. What is
   left out is counted and reported as a line of its own, at the latest when the log is closed: peers can cause lines, but cannot fill a
   disk with them.
2. Time comes with the record; no clock is read here and nothing wakes up.
3. A log file is opened for appending, and anew when it is asked for: whoever rotates it renames it first. Where the new one cannot be
   opened the old one stays in use.
4. Fields of JSON lines are named once and keep their names: `time`, `level`, `logger`, `event`, `message`, `values`,
   `traceback`. `values` is a list, or an object where the wording names its values.
"""

from __future__ import annotations

import logging
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

import msgspec

from orbitmq.limits.server import LOG_REPEATS_MAX, LOG_WINDOW_MS, LOG_WORDINGS_MAX

TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
LEFT_OUT: Final = "%d more lines like this were left out: %s"
ROOT: Final = "orbitmq"
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

Wording = tuple[str, int, str]
"""Logger, level, text without its values."""

_REST: Final[Wording] = ("", 0, "")


class TextFormatter(logging.Formatter):
    """A line of text for each record, and its traceback on lines of its own. What clients named themselves and others cannot begin a line,
    colour the terminal or turn the text around: such characters are shown escaped."""

    def __init__(self) -> None:
        super().__init__(TEXT_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), super().formatMessage(record))


class JsonFormatter(logging.Formatter):
    """A line of JSON for each record. Values that JSON does not know are given as their text."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": getattr(record, "event", None) or str(record.msg),
            "message": record.getMessage(),
        }
        if record.args:
            if isinstance(record.args, Mapping):
                line["values"] = {str(name): _plain(value) for name, value in record.args.items()}
            else:
                line["values"] = [_plain(value) for value in record.args]
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # Surrogates cannot be encoded; they come from bytes that were no UTF-8.
        return msgspec.json.encode(_clean(line)).decode()


def _plain(value: object) -> object:
    return value if isinstance(value, int | float | str | bool) else str(value)


def _clean(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _clean(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_clean(one) for one in value]
    return value


class _WordingWindow:
    """The lines of one wording since `begun_s`."""

    __slots__ = ("begun_s", "left_out", "written")

    def __init__(self, begun_s: float) -> None:
        self.begun_s = begun_s
        self.written = 0
        self.left_out = 0


class BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes lines, at most so many of one wording in a window."""

    def __init__(
        self,
        stream: TextIO,
        repeats_max: int = LOG_REPEATS_MAX,
        window_ms: int = LOG_WINDOW_MS,
        file: Path | None = None,
    ) -> None:
        """`file`: where lines go instead of `stream`. OSError when it cannot be opened."""
        super().__init__(stream if file is None else _opened(file))
        self.file = file
        self._repeats_max = repeats_max
        self._window_s = window_ms / 1_000
        self._windows: dict[Wording, _WordingWindow] = {}
        self._behind: dict[Wording, _WordingWindow] = {}
        """Windows with lines that were left out and not reported yet."""
        self.lines: Counter[str] = Counter()
        """Lines written, by level."""
        self.left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        now_s = record.created
        for wording in [wording for wording, late in self._behind.items() if self._is_over(late, now_s)]:
            self._report(wording, now_s)
        repeats_max = max(self._repeats_max, getattr(record, "repeats_max", 0))
        window = self._window_of((record.name, record.levelno, str(record.msg)), now_s, repeats_max)
        if window.written >= repeats_max:
            window.left_out += 1
            self.left_out += 1
            return
        window.written += 1
        self._write(record)

    def _window_of(self, wording: Wording, now_s: float, repeats_max: int) -> _WordingWindow:
        if wording not in self._windows and len(self._windows) >= LOG_WORDINGS_MAX:
            wording = _REST
        window = self._windows.get(wording)
        if window is None or self._is_over(window, now_s):
            window = self._windows[wording] = _WordingWindow(now_s)
        elif window.written >= repeats_max:
            self._behind[wording] = window
        return window

    def _is_over(self, window: _WordingWindow, now_s: float) -> bool:
        """Also when the wall clock was set back."""
        return not 0 <= now_s - window.begun_s < self._window_s

    def _report(self, wording: Wording, now_s: float) -> None:
        window = self._behind.pop(wording)
        self._windows.pop(wording, None)
        name, level, text = wording
        report = logging.LogRecord(
            name or ROOT, level or logging.WARNING, "", 0, LEFT_OUT, (window.left_out, text or "various"), None
        )
        report.created = now_s
        report.msecs = now_s % 1 * 1_000
        self._write(report)

    def _write(self, record: logging.LogRecord) -> None:
        self.lines[record.levelname] += 1
        super().emit(record)

    def reopen(self) -> None:
        """Open the log file anew, under its name; without one nothing is done. OSError when it cannot be opened: the one in use stays.

        Lines that the former one has no room for are lost: a file that is deleted and not closed takes up the room that is missing.
        """
        if self.file is None:
            return
        opened = _opened(self.file)
        self.acquire()
        try:
            before, self.stream = self.stream, opened
        finally:
            self.release()
        with suppress(OSError):
            before.close()

    def close(self) -> None:
        """Report what was left out, then close; a stream that was given stays open."""
        self.acquire()
        try:
            for wording, late in list(self._behind.items()):
                self._report(wording, late.begun_s + self._window_s)
        finally:
            self.release()
        super().close()
        if self.file is not None:
            logging.getLogger().removeHandler(self)
            self.stream.close()


def _opened(file: Path) -> TextIO:
    return file.open("a", encoding="utf-8", errors="backslashreplace")


def begin_logging(
    form: str,
    levels: Iterable[str],
    stream: TextIO | None = None,
    repeats_max: int = LOG_REPEATS_MAX,
    file: Path | None = None,
) -> BoundedHandler:
    """Send the log of this process to `file` or `stream` (standard error), in `text` or `json`; replaces earlier handlers.

    `levels` are names such as `INFO`, for everything, and `store=DEBUG` for a part of orbitmq. OSError when the file cannot be opened.
    """
    handler = BoundedHandler(stream if stream is not None else sys.stderr, repeats_max, file=file)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for earlier in list(root.handlers):
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for one in levels:
        name, _, level = one.rpartition("=")
        part = f"{ROOT}.{name.removeprefix(ROOT + '.')}" if name and name != ROOT else name
        logging.getLogger(part or None).setLevel(level)
    return handler
