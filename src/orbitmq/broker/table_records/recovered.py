"""What the log says of a table that nobody has bound yet: it is recovered before the tables are loaded."""

from __future__ import annotations

from orbitmq.broker.table_records.record_form import Changed
from orbitmq.protocol.remoting.bodies import DataVersion


class RecoveredTable:
    """The last words on its keys, in the order of the log."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.version: DataVersion | None = None

    def take(self, change: Changed) -> None:
        for key, value in change.values().items():
            if value is None:
                self.values.pop(key, None)
            else:
                self.values[key] = value
        self.version = change.data_version() or self.version
