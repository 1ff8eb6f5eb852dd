"""Reading what the log says of a key of a table: memory holds no more than where."""

from __future__ import annotations

from typing import Final

from orbitmq.broker.table_records.last_words import LastWords, Place
from orbitmq.broker.table_records.record_form import Changed, Record, decode
from orbitmq.errors import RecordError
from orbitmq.protocol.records import decode_record
from orbitmq.store.commit_log import CommitLog


class WordReading:
    """`log` is set when the store is restored."""

    def __init__(self, words: LastWords) -> None:
        self._words = words
        self.log: CommitLog | None = None
        self.recorded_at: Final = words.position
        """`recorded_at(table, key)`: the log position of the last record that gives a key a value; -1 where none does."""
        self.keys_of: Final = words.keys_of
        self.unreadable_count = 0
        """Records that could not be read."""

    @property
    def log_start(self) -> int:
        """The oldest byte that is left."""
        return 0 if self.log is None else self.log.start

    def record_at(self, place: Place) -> Record:
        """Raises RecordError."""
        where = f"log position {place.physical_offset}"
        assert self.log is not None, "restore() comes first"
        view = self.log.sound_record(place.physical_offset)
        if view is None:
            raise RecordError(f"the record at {where} is damaged or gone")
        return decode(bytes(decode_record(view).body), where)

    def last_word(self, table: str, key: str) -> bytes | None:
        """The value that the last record gives a key; None where there is none. Raises RecordError."""
        place = self._words.place(table, key)
        record = None if place is None else self.record_at(place)
        return record.values().get(key) if isinstance(record, Changed) else None
