r"""Java's properties form (not the properties of messages): what `broker.conf` and the bodies of the configuration requests are written in.

One `key=value` a line; `=`, `:` or white space ends the key; lines that begin with `#` or `!` are comments; a
backslash at the end of a line continues it on the next, whose leading white space is dropped; `\t \n \r \f`,
`\uXXXX` (UTF-16, so surrogate pairs come as two) and a backslash before any other character are escapes.
(Source: the description of `java.util.Properties.load`.)

Rules of this file
1. Reading keeps order and line numbers, so that an error can name its place.
2. A malformed `\u` escape is an error, as it is in Java; everything else has a reading.
3. What `format_properties` writes, `parse_properties` reads back equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from orbitmq.errors import ConfigurationError

_BLANK: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


class JavaProperty(NamedTuple):
    """One entry and the number of the line it began on, from 1."""

    key: str
    value: str
    line: int


def parse_properties(text: str, *, where: str = "properties text") -> list[JavaProperty]:
    """All entries of `text` in order; a key given twice stands twice (in Java the last one counts).

    Raises ConfigurationError, naming `where` and the line, for a malformed `\\u` escape.
    """
    entries: list[JavaProperty] = []
    for line, logical in _logical_lines(text):
        key_end, value_begin = _split(logical)
        place = f"{where}, line {line}"
        entries.append(JavaProperty(_unescape(logical[:key_end], place), _unescape(logical[value_begin:], place), line))
    return entries


def read_properties(data: bytes, *, where: str) -> dict[str, str]:
    """The body of a request or answer as key to value; of a key given twice the last one counts.

    Raises ConfigurationError like `parse_properties`.
    """
    return {entry.key: entry.value for entry in parse_properties(decode_text(data), where=where)}


def decode_text(data: bytes) -> str:
    """Properties bytes as text: UTF-8, or Latin-1 (what Java reads) when they are not; a byte order mark is dropped."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def format_properties(entries: Iterable[tuple[str, str]]) -> str:
    """`entries` as properties text, one a line, plain ASCII.

    Blanks inside a value stay as they are; only a leading one needs its escape.
    """
    return "".join(f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}\n" for key, value in entries)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined, without comments and blank lines, and the number of their first line."""
    pending: str | None = None
    begun_at = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        stripped = natural.lstrip(_BLANK)
        if pending is None:
            if not stripped or stripped[0] in "#!":
                continue
            begun_at, pending = number, ""
        backslashes = len(stripped) - len(stripped.rstrip("\\"))
        if backslashes % 2:
            pending += stripped[:-1]
            continue
        yield begun_at, pending + stripped
        pending = None
    if pending:
        yield begun_at, pending


def _split(line: str) -> tuple[int, int]:
    """Where the key ends and where the value begins."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANK:
        at += 2 if line[at] == "\\" else 1
    key_end = min(at, len(line))
    at = key_end
    while at < len(line) and line[at] in _BLANK:
        at += 1
    if at < len(line) and line[at] in "=:":
        at += 1
        while at < len(line) and line[at] in _BLANK:
            at += 1
    return key_end, at


def _unescape(text: str, place: str) -> str:
    if "\\" not in text:
        return text
    pieces: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char != "\\":
            pieces.append(char)
            at += 1
            continue
        following = text[at + 1 : at + 2]
        if following == "u":
            digits = text[at + 2 : at + 6]
            if re.fullmatch(r"[0-9a-fA-F]{4}", digits) is None:
                raise ConfigurationError(
                    f"{place}: \\u{digits} is not a character",
                    remedy="write \\u and four hexadecimal digits, or double the backslash",
                )
            pieces.append(chr(int(digits, 16)))
            at += 6
        else:
            pieces.append(_ESCAPES.get(following, following))
            at += 2
    joined = "".join(pieces)
    try:
        return joined.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{place}: half of a surrogate pair", remedy="write both halves") from None


def _escape(text: str, *, is_key: bool) -> str:
    pieces: list[str] = []
    for position, char in enumerate(text):
        if char in "\\=:#!" and (is_key or char == "\\"):
            pieces.append("\\" + char)
        elif char == " ":
            pieces.append("\\ " if is_key or position == 0 else " ")
        elif char in "\t\n\r\f":
            pieces.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        elif " " < char <= "~":
            pieces.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            pieces.extend(f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2))
    return "".join(pieces)
