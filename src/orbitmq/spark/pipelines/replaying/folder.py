"""The folder of a replay: its plan, and how far it is, so that a run that was killed can be gone on with.

`plan.json` is written once, `done.json` behind every slice. Both are written beside and moved, so that they are whole whenever they are
there; `done.json` may be one slice behind the truth, and the brokers recognise the rows of that one.

Rules of this file
1. A place is a folder of this machine or a URL that pyarrow knows.
2. What cannot be read is an error, never a beginning from the start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.replaying.plan import ReplayPlan

PLAN: Final = "plan.json"
DONE: Final = "done.json"

T = TypeVar("T")


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a replay together have done. slices: those before this number are written."""

    slices: int = 0
    rows_read: int = 0
    rows_written: int = 0


class ReplayFolder:
    def __init__(self, place: str) -> None:
        from pyarrow import ArrowInvalid, fs

        self.place = place
        self._files: Any = fs.LocalFileSystem()
        self._path = str(Path(place).absolute())
        if "://" not in place:
            return
        try:
            self._files, self._path = fs.FileSystem.from_uri(place)
        except ArrowInvalid as error:
            raise ConfigurationError(f"checkpoint {place!r} is no folder and no URL of one: {error}") from error

    def plan(self) -> ReplayPlan | None:
        """None where no replay was begun."""
        return self._read(PLAN, ReplayPlan)

    def done(self) -> Done:
        return self._read(DONE, Done) or Done()

    def begin(self, plan: ReplayPlan) -> None:
        try:
            self._files.create_dir(self._path, recursive=True)
        except OSError as error:
            raise ConfigurationError(
                f"checkpoint {self.place} cannot be made: {error}", remedy="name a folder that can be written"
            ) from error
        self._write(PLAN, plan)

    def keep(self, done: Done) -> None:
        self._write(DONE, done)

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = f"{self._path}/{name}"
        try:
            with self._files.open_input_stream(path) as stream:
                data = stream.read()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.DecodeError as error:
            raise ConfigurationError(
                f"{self.place}/{name} cannot be read: {error}",
                remedy="it is no folder of a replay, or damaged: begin anew in another folder",
            ) from error

    def _write(self, name: str, value: msgspec.Struct) -> None:
        path = f"{self._path}/{name}"
        with self._files.open_output_stream(f"{path}.new") as stream:
            stream.write(msgspec.json.encode(value))
        self._files.move(f"{path}.new", path)
