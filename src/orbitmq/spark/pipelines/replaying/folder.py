"""The folder of a replay: its plan, and how far it is, so that a run that was killed can be gone on with.

`plan.json` is written once, `done.json` behind every slice. Both are replaced as a whole and outlive a power cut; `done.json` may be one
slice behind the truth, and the brokers recognise the rows of that one.

Rules of this file
1. A place is a folder of this machine or a URL that pyarrow knows.
2. What cannot be read is an error, never a beginning from the start.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.spark.durable import make_directory, replace_content
from orbitmq.spark.log_files.places import place_at
from orbitmq.spark.pipelines.replaying.plan import ReplayPlan

PLAN: Final = "plan.json"
DONE: Final = "done.json"

T = TypeVar("T")


class ReplayDone(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a replay together have done. slices: those before this number are written."""

    slices: int = 0
    rows_read: int = 0
    rows_written: int = 0
    rows_quarantined: int = 0

    def plus(self, more: ReplayDone) -> ReplayDone:
        return ReplayDone(
            slices=self.slices + more.slices,
            rows_read=self.rows_read + more.rows_read,
            rows_written=self.rows_written + more.rows_written,
            rows_quarantined=self.rows_quarantined + more.rows_quarantined,
        )


class ReplayFolder:
    """Raises ConfigurationError for what is no place, and StoreError when it cannot be read or written."""

    def __init__(self, place: str) -> None:
        self.place: Final = place_at(place)

    def plan(self) -> ReplayPlan | None:
        """None where no replay was begun."""
        return self._read(PLAN, ReplayPlan)

    def done(self) -> ReplayDone:
        return self._read(DONE, ReplayDone) or ReplayDone()

    def begin(self, plan: ReplayPlan) -> None:
        make_directory(self.place)
        self._write(PLAN, plan)

    def keep(self, done: ReplayDone) -> None:
        self._write(DONE, done)

    def _read(self, name: str, kind: type[T]) -> T | None:
        file = self.place.under(name)
        data = file.content()
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                f"{file.path} cannot be read: {error}",
                remedy="it is no folder of a replay, or damaged: begin anew in another folder",
            ) from error

    def _write(self, name: str, value: msgspec.Struct) -> None:
        replace_content(self.place.under(name), msgspec.json.encode(value))
