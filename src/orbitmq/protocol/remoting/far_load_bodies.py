"""Bodies of FAR_LOAD: a job that writes files into the far tier of one broker, and has them count.

A job asks the brokers whether one of them knows it (`find`), has the chosen one name an attempt (`open`), writes files, and names them
(`load`). The broker looks at each and answers `checking` until a record of its log makes all of them count: `loaded`. Whoever asks about
the job later gets that answer.

Rules of this file
1. Every request may be repeated, and come late: the first attempt whose files count is the job's, and every answer says so.
2. `loaded` is durable.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from orbitmq.protocol.remoting.bodies.json_body import Count, Int64, JsonBody


class FarLoadAction(StrEnum):
    FIND = "find"
    OPEN = "open"
    LOAD = "load"


class FarLoadVerdict(StrEnum):
    UNKNOWN = "unknown"
    """This broker knows nothing of the job."""
    OPEN = "open"
    """Write files, and name them: everything that is needed for that is in the answer."""
    NO_TIER = "no_tier"
    """This broker takes no files, and `reason` says why. Send all rows, after a `load` without files."""
    CHECKING = "checking"
    """Ask again with the same request. `reason` says what keeps the broker from going on, if anything does."""
    LOADED = "loaded"
    """The files of `attempt` count. Of the job's rows those due before `split_ms` may still have to be sent."""
    REFUSED = "refused"
    """None of these files count, and `reason` says why."""


class LoadFile(JsonBody):
    """A file that was written: its name in the tier, the CRC-32 of its bytes, how many rows it has."""

    name: str
    size_bytes: Count
    crc: Int64
    rows: Count


class FarLoadRequest(JsonBody):
    """Body of FAR_LOAD. All but the job's name is for `load`, and repeats what the answer to `open` said.

    `split_ms`: rows due before it are in none of the files.
    """

    action: FarLoadAction
    job: str
    attempt: str = ""
    created_ms: Int64 = 0
    split_ms: Int64 = 0
    files: list[LoadFile] = msgspec.field(default_factory=list)


class FarLoadState(JsonBody):
    """Answer to FAR_LOAD; what a verdict does not speak of is empty."""

    verdict: FarLoadVerdict
    reason: str = ""
    attempt: str = ""
    created_ms: Int64 = 0
    split_ms: Int64 = 0
    files: Count = 0
    rows: Count = 0
    checked: Count = 0
    """Files that were looked at so far."""
    url: str = ""
    """Where the tier lies, as the broker reaches it."""
    stem: str = ""
    """What the names of the attempt's files begin with; a hyphen follows."""
    probe: str = ""
    """A file with the text `probe_text`: who can read it sees the tier's storage."""
    probe_text: str = ""
    store_host: str = ""
    """What the broker gives every message: its address (hexadecimal), and properties as stored."""
    own: str = ""
    precision_ms: Int64 = 0
