"""YAML of account files: read within bounds, written as RocketMQ reads it.

    text            what was written, a number of more than 18 digits or with a leading zero too
    int, bool       decimal numbers and the words of YAML 1.1, so that they are written again as they were
    None            nothing, `~` and `null`

Rules of this file
1. Only the parser of the library is used, never its constructors: a file makes tables, lists and single values, nothing else. Tags and
   merge keys are refused.
2. An alias counts as much as what it stands for, so a few lines cannot become a huge tree.
3. An error names line and column and never quotes the file: what stands there may be a secret.

(RocketMQ broker: ACL in 4.x.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from orbitmq.limits.plain_access import PLAIN_DEPTH_MAX, PLAIN_FILE_BYTES_MAX, PLAIN_VALUES_MAX

Value = str | int | bool | None | list["Value"] | dict[str, "Value"]

_PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOTHING: Final = frozenset({"", "~", "null", "Null", "NULL"})
_WORDS: Final = {
    spelled: value
    for value, words in ((True, ("true", "yes", "on")), (False, ("false", "no", "off")))
    for word in words
    for spelled in (word, word.capitalize(), word.upper())
}
_NUMBER: Final = re.compile("-?(?:0|[1-9][0-9]{0,17})", re.ASCII)


def read_yaml(data: bytes) -> Value:
    """The one document of a file; None for an empty one. ValueError, with line and column, for what cannot be read or exceeds a bound."""
    if len(data) > PLAIN_FILE_BYTES_MAX:
        raise ValueError(f"it has {len(data)} bytes, {PLAIN_FILE_BYTES_MAX} are allowed")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8: byte {error.start} cannot be read") from None
    try:
        return _TreeReader(yaml.parse(text, Loader=_PARSER)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ValueError(f"{place}it is not YAML: {error.problem}") from None
    except yaml.YAMLError:  # its text quotes the file
        raise ValueError("it is not YAML: it holds characters that are not allowed") from None


def write_yaml(tree: Value) -> bytes:
    """The text of a file. Comments and aliases of the file that was read are not part of the tree, so they are lost."""
    text = yaml.dump(tree, Dumper=_Writer, default_flow_style=False, sort_keys=False, allow_unicode=True, width=120)
    return text.encode("utf-8")


class _Writer(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


class _TreeReader:
    """Builds the tree from the events of a document."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchored: dict[str, tuple[Value, int]] = {}
        self._count = 0

    def document(self) -> Value:
        tree: Value = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _refused(event, "a second document begins here; a file holds one")
                tree = self._value(next(self._events), 0)
        return tree

    def _value(self, event: Any, depth: int) -> Value:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchored:
                raise _refused(event, "an alias stands for nothing; text that begins with * needs quotes")
            value, size = self._anchored[event.anchor]
            self._add(event, size)
            return value
        before = self._count
        self._add(event, 1)
        if event.tag is not None:
            raise _refused(event, "a tag (!) is not allowed; text that begins with ! needs quotes")
        if isinstance(event, yaml.ScalarEvent):
            value = _single(event.value) if event.implicit[0] else event.value
        elif depth >= PLAIN_DEPTH_MAX:
            raise _refused(event, f"more than {PLAIN_DEPTH_MAX} lists and tables stand inside each other")
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._list(depth + 1)
        else:
            value = self._table(depth + 1)
        if event.anchor is not None:
            self._anchored[event.anchor] = value, self._count - before
        return value

    def _list(self, depth: int) -> Value:
        values: list[Value] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            values.append(self._value(event, depth))
        return values

    def _table(self, depth: int) -> Value:
        table: dict[str, Value] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = event.value if isinstance(event, yaml.ScalarEvent) else ""
            if not key or event.tag is not None or (key == "<<" and event.implicit[0]):
                raise _refused(event, "a key has to be text; merge keys (<<) are not supported")
            if key in table:
                raise _refused(event, "this key stands twice in its table")
            self._add(event, 1)
            table[key] = self._value(next(self._events), depth)
        return table

    def _add(self, event: Any, count: int) -> None:
        self._count += count
        if self._count > PLAIN_VALUES_MAX:
            raise _refused(event, f"more than {PLAIN_VALUES_MAX} values, those of aliases counted each time")


def _single(text: str) -> Value:
    """The value of a scalar without quotes."""
    if text in _NOTHING:
        return None
    if text in _WORDS:
        return _WORDS[text]
    return int(text) if _NUMBER.fullmatch(text) else text


def _refused(event: Any, why: str) -> ValueError:
    mark = event.start_mark
    return ValueError(f"line {mark.line + 1}, column {mark.column + 1}: {why}")
