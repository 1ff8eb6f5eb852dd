"""File descriptors: one budget for connections and files.

Every connection takes a descriptor, and so do open files and mappings of the store. A crowd of clients must never leave the store
without one for its next file, and a crowd of topics none without one for a connection, so each gets a part of what the process
may open: connections are refused beyond it, files are given back and opened again (see `store.open_files`).

Rules of this file
1. A server process raises the soft limit to the hard one at its start: nobody has to set `ulimit -n` where the system
   allows enough. A server inside another program takes the limit as it is.
2. The store's share is a quarter, at least `FILES_MIN`; connections of all ports share the rest.
3. Of that share `OTHERS` stay for what is neither. A mapping costs a descriptor as well; it gets one of four.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import ConfigurationError
from orbitmq.limits.server import DESCRIPTORS_MAX, FILES_MIN, OPEN_FILES_MAX

DESCRIPTORS_MIN: Final = FILES_MIN + 64
"""With fewer a server would start and have no connection left for its clients."""

OTHERS: Final = 64
"""Descriptors for what is no file that stays open: listening sockets, pipes, the event loop, libraries, tables that are being written, and
connections between the members of a group."""


OTHER_MAPPINGS: Final = 4_096
"""Mappings of a process that are no files of the store: libraries, threads, and every block of memory beyond 128 KB."""

MAPPINGS_USUAL: Final = 65_530
"""`vm.max_map_count` of Linux where nobody has changed it."""


class FileRoom(NamedTuple):
    """How many files of the store may be open, and mapped, at a time."""

    open_max: int
    mapped_max: int


def files_share(descriptors: int) -> int:
    """What connections leave to everything else."""
    return max(descriptors // 4, FILES_MIN)


def file_room(descriptors: int, mappings: int = MAPPINGS_USUAL) -> FileRoom:
    """The store's part of the descriptors and mappings that a process may have."""
    own = min(files_share(descriptors) - OTHERS, OPEN_FILES_MAX)
    mapped = max(min(own // 4, mappings - OTHER_MAPPINGS), 1)
    return FileRoom(own - mapped, mapped)


def mapping_limit() -> int:
    """How many mappings a process may have."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    except (OSError, ValueError):  # no Linux
        return MAPPINGS_USUAL


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


def check_descriptors(descriptors: int) -> None:
    """Raises ConfigurationError where a server would say that it is ready and serve nobody."""
    if descriptors < DESCRIPTORS_MIN:
        raise ConfigurationError(
            f"this process may open {descriptors} files and sockets; a server needs {DESCRIPTORS_MIN} and as many more as it has clients",
            remedy="allow more: ulimit -n, or LimitNOFILE of systemd",
        )


def descriptor_limit() -> int:
    """How many descriptors this process may open as it is."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else min(soft, DESCRIPTORS_MAX)


class ConnectionRoom:
    """How many connections all ports of the process may hold together."""

    __slots__ = ("open_count", "open_max")

    def __init__(self, descriptors: int) -> None:
        self.open_count = 0
        self.open_max = max(descriptors - files_share(descriptors), 1)

    def take(self) -> bool:
        """Count a new connection; False when there is no room for it."""
        if self.open_count >= self.open_max:
            return False
        self.open_count += 1
        return True

    def give_back(self) -> None:
        self.open_count -= 1
