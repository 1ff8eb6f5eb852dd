"""What the log of a slave is to that of its master."""

from __future__ import annotations

import enum


class LogRelation(enum.Enum):
    """The value is what the wire says."""

    BEGINNING = "beginning"
    """The master's log begins with it: it has nothing of its own."""

    BEHIND = "behind"
    """It ends before what the master still has. As far as epochs tell it has nothing of its own."""

    PARTED = "parted"
    """It has what the master does not have."""

    OTHER = "other"
    """It is the log of something else."""
