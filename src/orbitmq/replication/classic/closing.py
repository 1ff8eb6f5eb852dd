"""Why a link was closed: a reason to count by, and words for the operator."""

from __future__ import annotations

import enum
from typing import NamedTuple


class LinkEnd(enum.Enum):
    """The value is the reason as metrics and the log name it."""

    LOST = "connection lost"
    SILENT = "silent peer"
    BAD_FRAME = "malformed frame"
    STOPPED = "stopped"
    REFUSED = "refused"
    """The peer must not be served: a stranger, or one too many."""
    REPLACED = "replaced"
    """The same slave has connected anew."""

    BEYOND_END = "slave is beyond our end"
    """It has what we do not have: the two logs have parted, or we have lost something."""
    BEHIND_START = "slave is behind our start"
    """What it asks for was removed here: it has to be seeded."""
    INSIDE_RECORD = "slave ends inside a record"
    """Where it asks us to go on no record of ours begins: the two logs have parted, or it has cut a record."""
    NOT_SENT = "report of what was not sent"
    WENT_BACK = "report went back"
    LOG_CUT = "our log was cut"
    LOG_UNREADABLE = "our log is not readable"
    DAMAGED = "our log is damaged"
    """Damage was found, or mended: the slave says so to its master with the next connection."""

    MISMATCH = "master goes on elsewhere"
    """The position of a transfer is not the end of our log."""
    APPEND_FAILED = "append failed"


class LinkClosed(NamedTuple):
    """`what` names the figures; `remedy` says what to do, and is empty where there is nothing to do."""

    why: LinkEnd
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.why.value}: {self.what}" if self.what else self.why.value
        return f"{text} ({self.remedy})" if self.remedy else text
