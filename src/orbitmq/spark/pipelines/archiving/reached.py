"""How far an archive is: the next offset of every queue and the next position of every log, as the table's log keeps them.

A Delta table keeps one number for each *application id*. A queue is an application, and its number is the first offset that is not
archived; so is a log, with its position. The number changes in the same commit that adds the files, so the two are never apart.

    orbitmq/queue/<topic>/<broker>/<queue id>     next offset
    orbitmq/log/<broker>                          next position in the commit log; the name may be empty
    orbitmq/since/<broker>                        what was stored before this time (ms) is left out of that log
    orbitmq/quarantine/<file>                     lines of a file below `_quarantine` that belongs to the archive
    orbitmq/import/<run>                          batches of the old archive that was imported (`importing.py`), and its last run

Rules of this file
1. Pure. Names are quoted, so that what stands between two slashes is one name.
2. Applications of others are passed over; one that begins like ours and is not understood is an error, never a beginning from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.reading.offsets import Offsets

_OURS: Final = "orbitmq/"
_QUEUE, _LOG, _SINCE, _QUARANTINE, _IMPORT = "queue", "log", "since", "quarantine", "import"


def queue_application(queue: MessageQueue) -> str:
    return f"{_OURS}{_QUEUE}/{quote(queue.topic, safe='')}/{quote(queue.broker_name, safe='')}/{queue.queue_id}"


def log_application(name: str) -> str:
    return f"{_OURS}{_LOG}/{quote(name, safe='')}"


def since_application(name: str) -> str:
    return f"{_OURS}{_SINCE}/{quote(name, safe='')}"


def quarantine_application(file: str) -> str:
    return f"{_OURS}{_QUARANTINE}/{quote(file, safe='')}"


def import_application(run: str) -> str:
    return f"{_OURS}{_IMPORT}/{quote(run, safe='')}"


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """Where an archive stands. positions and since: by the name of the log. quarantined: lines by the name of the file."""

    queues: Offsets = {}
    positions: dict[str, int] = {}
    since: dict[str, int] = {}
    quarantined: dict[str, int] = {}


def reached_of(applications: Mapping[str, int]) -> Reached:
    """Raises ConfigurationError for an application of a later orbitmq."""
    reached = Reached(queues={}, positions={}, since={}, quarantined={})
    for name, number in applications.items():
        if not name.startswith(_OURS):
            continue
        match name.split("/")[1:]:
            case [kind, topic, broker, queue_id] if kind == _QUEUE and queue_id.isdecimal():
                reached.queues[MessageQueue(unquote(topic), unquote(broker), int(queue_id))] = number
            case [kind, text] if kind == _LOG:
                reached.positions[unquote(text)] = number
            case [kind, text] if kind == _SINCE:
                reached.since[unquote(text)] = number
            case [kind, text] if kind == _QUARANTINE:
                reached.quarantined[unquote(text)] = number
            case [kind, _] if kind == _IMPORT:
                pass
            case _:
                raise ConfigurationError(
                    f"the archive has an application {name!r} that this orbitmq does not know",
                    remedy="it was written by a later orbitmq: run the archive with that version",
                )
    return reached
