"""Where in the log the last word on each key of each table stands.

Records are read again at every start, from the oldest last word on. So that these stay few, the keys with the oldest ones are recorded
anew when too many records lie behind them (`too_old`); and before their log file goes (`below`).

Rules of this file
1. Keys are held in the order of the positions of their last words.
2. Nothing here reads or writes. A key costs about 150 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from orbitmq.limits.broker import TABLE_MOVED_BYTES_MAX, TABLE_RECORDS_READ_MAX


class Place(NamedTuple):
    """Where a record is; `bytes_per_key` is its size, divided by its keys."""

    queue_offset: int
    physical_offset: int
    bytes_per_key: int


Key = tuple[str, str]
"""Table and key."""


class LastWords:
    def __init__(self) -> None:
        self._places: dict[Key, Place] = {}
        self.next_offset = 0
        """Queue offset behind the newest record."""

    def __len__(self) -> int:
        return len(self._places)

    def put(self, table: str, keys: Iterable[str], place: Place) -> None:
        """A record has the last word on these keys."""
        places = self._places
        for key in keys:
            places.pop((table, key), None)
            places[table, key] = place

    def said(self, table: str, put: Sequence[str], deleted: Sequence[str], place: Place) -> None:
        """A record gave these keys a value, and those none; without any key it ended the table. `place` with all of its bytes."""
        if count := len(put) + len(deleted):
            self.put(table, put, place._replace(bytes_per_key=place.bytes_per_key // count))
            self.forget(table, deleted)
        elif table:
            self.forget_table(table)

    def forget(self, table: str, keys: Iterable[str]) -> None:
        """Nothing is to be kept of these keys: what was said of them lies before the record that ends it."""
        for key in keys:
            self._places.pop((table, key), None)

    def forget_table(self, table: str) -> None:
        self._places = {key: place for key, place in self._places.items() if key[0] != table}

    def place(self, table: str, key: str) -> Place | None:
        return self._places.get((table, key))

    def position(self, table: str, key: str) -> int:
        """The log position of the last record that gives a key a value; -1 where none does."""
        place = self._places.get((table, key))
        return -1 if place is None else place.physical_offset

    def missing(self, table: str, keys: Iterable[str]) -> list[str]:
        """Those of the keys that have no last word."""
        return [key for key in keys if (table, key) not in self._places]

    def has(self, table: str) -> bool:
        """Whether any key of the table has a last word. Looks at all keys."""
        return any(name == table for name, _ in self._places)

    def keys_of(self, table: str) -> list[str]:
        """Keys of the table that have a last word. Looks at all keys."""
        return [key for name, key in self._places if name == table]

    @property
    def oldest(self) -> Place | None:
        return next(iter(self._places.values()), None)

    def first_offset(self) -> int:
        """Queue offset from which on records have to be read."""
        oldest = self.oldest
        return self.next_offset if oldest is None else oldest.queue_offset

    def below(self, physical_offset: int) -> Iterator[tuple[Key, Place]]:
        """Keys whose last word begins below a log position, oldest first."""
        for key, place in self._places.items():
            if place.physical_offset >= physical_offset:
                return
            yield key, place

    def bytes_below(self, physical_offset: int) -> int:
        return sum(place.bytes_per_key for _, place in self.below(physical_offset))

    def too_old(self, limit: int) -> list[Key]:
        """At most `limit` keys, the oldest, where a start would read too many records behind them; no more than `first_keys` gives."""
        oldest = self.oldest
        if oldest is None or self.next_offset - oldest.queue_offset <= TABLE_RECORDS_READ_MAX:
            return []
        return first_keys(self._places.items(), limit)


def first_keys(places: Iterable[tuple[Key, Place]], limit: int) -> list[Key]:
    """The first ones, at most `limit`, and one at least, whose values fit `TABLE_MOVED_BYTES_MAX`."""
    keys: list[Key] = []
    left_bytes = TABLE_MOVED_BYTES_MAX
    for key, place in places:
        left_bytes -= place.bytes_per_key
        if len(keys) >= limit or (keys and left_bytes < 0):
            break
        keys.append(key)
    return keys


class UnsureKeys:
    """Of a copy: keys that stood in files at its start and have no word in the log, while that may not have had everything yet."""

    def __init__(self, words: LastWords) -> None:
        self._words = words
        self._keys: dict[str, dict[str, None]] = {}

    def without(self, table: str, unrecorded: Iterable[str], held: Iterable[str]) -> list[str]:
        """Note those of the keys that have no word; the others of `unrecorded`."""
        unrecorded = list(unrecorded)
        unsure = self._keys[table] = dict.fromkeys(self._words.missing(table, (*unrecorded, *held)))
        return [key for key in unrecorded if key not in unsure]

    def settled(self) -> list[tuple[str, list[str]]]:
        """The log has had everything: tables, and what is not in it. Nothing is unsure any more."""
        keys, self._keys = self._keys, {}
        return [(table, self._words.missing(table, unsure)) for table, unsure in keys.items()]
