"""File descriptors: one budget for connections and files.

Every connection takes a descriptor, and so does every file of the store. A crowd of clients must never leave the store
without one for its next file, so connections get a part of what the process may open and are refused beyond it.

Rules of this file
1. A server process raises the soft limit to the hard one at its start: nobody has to set `ulimit -n` where the system
   allows enough. A server inside another program takes the limit as it is.
2. The store's share is a quarter, at least `FILES_MIN`; connections of all ports share the rest.
"""

from __future__ import annotations

import resource
from typing import Final

from orbitmq.limits.server import DESCRIPTORS_MAX

FILES_MIN: Final = 128
"""Descriptors kept for files, pipes and the event loop, however few there are."""


def raise_descriptor_limit() -> int:
    """Allow this process what the system lets it have; the number of descriptors it may open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):  # the kernel's own maximum is lower
            return soft
        return wanted
    return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft


def descriptor_limit() -> int:
    """How many descriptors this process may open as it is."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else min(soft, DESCRIPTORS_MAX)


class ConnectionRoom:
    """How many connections all ports of the process may hold together."""

    __slots__ = ("open_count", "open_max")

    def __init__(self, descriptors: int) -> None:
        self.open_count = 0
        self.open_max = max(descriptors - max(descriptors // 4, FILES_MIN), 1)

    def take(self) -> bool:
        """Count a new connection; False when there is no room for it."""
        if self.open_count >= self.open_max:
            return False
        self.open_count += 1
        return True

    def give_back(self) -> None:
        self.open_count -= 1
