"""Tables whose changes are recorded in the log: which keys changed since the last record, and what each says now.

Rules of this file
1. A key that changed is noted once; its value is asked for when the record is written.
2. What comes from the log is not noted: it is recorded already.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from itertools import islice
from typing import ClassVar, Protocol, runtime_checkable

from orbitmq.broker.table_saving import SavedTable, TableFile
from orbitmq.clock import Clock
from orbitmq.protocol.remoting.bodies import DataVersion


class KeyChanges:
    """The keys of one table that changed since the last record. Nothing is noted before `begin`."""

    __slots__ = ("_keys", "_noted", "is_on")

    def __init__(self) -> None:
        self.is_on = False
        self._keys: dict[str, None] = {}
        self._noted: Callable[[bool], None] = _nobody

    def __bool__(self) -> bool:
        return bool(self._keys)

    def begin(self, noted: Callable[[bool], None]) -> None:
        """Note changes from now on. `noted(at_once)` is called with the first since the last record; and with each that may not wait to be
        gathered, then true."""
        self.is_on, self._noted = True, noted

    def end(self) -> None:
        """Note nothing any more, and forget what is noted."""
        self.is_on = False
        self._keys.clear()

    def note(self, key: str, *, at_once: bool = False) -> None:
        """A key changed or went. 60 ns."""
        if self.is_on:
            is_first = not self._keys
            self._keys[key] = None
            if is_first or at_once:
                self._noted(at_once)

    def discard(self, keys: Iterable[str]) -> None:
        """The log says something newer of these keys."""
        for key in keys:
            self._keys.pop(key, None)

    def noted(self) -> list[str]:
        """All of them, in no order."""
        return list(self._keys)

    def take(self, limit: int) -> list[str]:
        """The keys noted first, at most so many; they count as recorded."""
        keys = list(islice(self._keys, limit))
        for key in keys:
            del self._keys[key]
        return keys


def _nobody(at_once: bool) -> None:
    """Until somebody wants to hear of it."""


class RecordedTable(Protocol):
    """A table as its records see it: keys, and for each a JSON value."""

    record_name: ClassVar[str]
    """Under which its records name it; never changed."""
    is_gathered: ClassVar[bool]
    """It changes all the time: recorded once a second."""
    version: DataVersion
    changes: KeyChanges

    def recorded_keys(self) -> Iterable[str]:
        """Those whose value is not what every broker has by itself."""
        ...

    def recorded_value(self, key: str) -> bytes | None:
        """What the key says now, as JSON; None where there is nothing to say."""
        ...

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        """The log says this of some keys; None: nothing. Raises ValueError (of msgspec) for a value that is none, and takes what
        came before it."""
        ...

    def differs(self, key: str, value: bytes | None) -> bool:
        """Whether the key says something else than a record that has this value."""
        ...

    def is_newer_than(self, version: DataVersion | None) -> bool:
        """Whether the table, as loaded from its file, was changed after a version that differs from it."""
        ...


@runtime_checkable
class OutlivingTable(RecordedTable, Protocol):
    """A table of what is known although the records that said it are gone from the log."""

    def say_again(self) -> None:
        """The log says nothing of the table any more: what was said before is to be said once more."""
        ...

    def unsaid_below(self, position: int) -> list[str] | None:
        """Keys whose last word does not say what the records below a log position alone say; None: that is not known yet, ask again."""
        ...


def note_unsaid(tables: Iterable[OutlivingTable], position: int, on_their_way: Container[tuple[str, str]]) -> bool:
    """Note what records below a log position alone say, but for what is on its way into the log. Whether there is none of both."""
    is_said = True
    for table in tables:
        unsaid = table.unsaid_below(position)
        is_said = is_said and unsaid == []
        for key in unsaid or ():
            if (table.record_name, key) not in on_their_way:
                table.changes.note(key, at_once=True)
    return is_said


class RecordedSavedTable(SavedTable):
    """A table that has a file and records."""

    record_name: ClassVar[str]
    is_gathered: ClassVar[bool] = False

    def __init__(self, file: TableFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self.changes = KeyChanges()

    def recorded_keys(self) -> Iterable[str]:
        raise NotImplementedError

    def recorded_value(self, key: str) -> bytes | None:
        raise NotImplementedError

    def take(self, values: Mapping[str, bytes | None], version: DataVersion | None) -> None:
        """As `RecordedTable.take`; the file is written with the next save."""
        for key, value in values.items():
            self._take_one(key, value)
        if version is not None:
            self.version = version
        self.dirty = True
        self.change_count += 1

    def _take_one(self, key: str, value: bytes | None) -> None:
        raise NotImplementedError

    def differs(self, key: str, value: bytes | None) -> bool:
        return self.recorded_value(key) != value

    def is_newer_than(self, version: DataVersion | None) -> bool:
        """A file that differs although its version is the same was changed by somebody who does not count."""
        if version is None:
            return False
        own = self.version
        return (own.counter, own.timestamp) >= (version.counter, version.timestamp)

    def _changed_key(self, key: str) -> None:
        self._changed()
        self.changes.note(key)


class OwnTable(RecordedTable, Protocol):
    """A table with a small file of its own, which is read before the store is opened."""

    def save(self) -> None:
        """Write the file where it says something else; durable on return. Blocks, on any thread. Raises OSError."""
        ...


def nobody_notes(at_once: bool) -> None:
    """Of keys that are not recorded for themselves."""
