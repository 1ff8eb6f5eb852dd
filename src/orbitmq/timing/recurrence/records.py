"""Recurring messages as records: what is written when one changes, and what reading the records in their order gives.

A record is JSON of version 1:

* `{"version": 1, "kind": "defined", "recurring": {...}}`: created, replaced, paused or resumed; everything that is known.
* `{"version": 1, "kind": "progressed", "name": ..., "generation": ..., "progress": {...}}`: after a turn; small, because it is
  written for every run.
* `{"version": 1, "kind": "deleted", "name": ..., "generation": ...}`.

Rules of this file
1. How versions follow each other, and what becomes of a record that cannot be read: `versioned_json`. A definition that an older program
   writes anew lacks what it did not know.
2. Reading applies records in their order and does not judge rules: a rule that is not usable any more is for its owner to show.
"""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.protocol.versioned_json import decode_versioned
from orbitmq.timing.recurrence.state import RecurringState, RunProgress

VERSION: Final = 1


class Defined(msgspec.Struct, frozen=True, tag_field="kind", tag="defined"):
    version: int
    recurring: RecurringState


class Progressed(msgspec.Struct, frozen=True, tag_field="kind", tag="progressed"):
    version: int
    name: str
    generation: int
    progress: RunProgress


class Deleted(msgspec.Struct, frozen=True, tag_field="kind", tag="deleted"):
    version: int
    name: str
    generation: int


Record = Defined | Progressed | Deleted


_DECODER: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)


def defined(recurring: RecurringState) -> Defined:
    return Defined(VERSION, recurring)


def progressed(recurring: RecurringState) -> Progressed:
    return Progressed(VERSION, recurring.name, recurring.generation, recurring.progress)


def deleted(recurring: RecurringState) -> Deleted:
    return Deleted(VERSION, recurring.name, recurring.generation)


def encode(record: Record) -> bytes:
    """The stored form, UTF-8. Four thirds of the body's length, and a few hundred bytes."""
    return msgspec.json.encode(record)


def decode(data: bytes, where: str) -> Record:
    """The record of a stored form. RecordError, which says `where` it was, when it is none or of a newer version."""
    remedy = "define the recurring message again; the record stays as it is"
    return decode_versioned(data, _DECODER, VERSION, what="a recurring message", where=where, remedy=remedy)


def replay(state: RecurringState | None, record: Record) -> RecurringState | None:
    """What holds after one more record about the same name. A progress of a generation that was replaced changes nothing."""
    match record:
        case Defined():
            return record.recurring
        case Deleted():
            return None
        case Progressed():
            if state is None or state.generation != record.generation:
                return state
            return msgspec.structs.replace(state, progress=record.progress)
