"""Who writes to storage that brokers share: the name of each tenure as its writer, and what that says of a file.

    writers/<number>-<directory of the broker>-<random>     one file of each writer; the last name in order is the one that counts
    landing/<first>-<next>-<writer>-<random>.parquet        names of files end with who wrote them, so no two are written under one name

Rules of this file
1. Pure: names in, names out. Reading and writing them is `arrow_tier`.
2. A broker that led before goes on only while nobody else wrote his name behind its own. One that followed takes over from whoever led:
   somebody decided that it leads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

WRITERS: Final = "writers"
WRITER_DIRECTORY_CHARS: Final = 16
"""Of the id of a broker's directory, in the name of a writer."""

_WRITER: Final = re.compile(r"[0-9]{10}-[0-9a-f]{16}-[0-9a-f]{8}")


def next_writer(known: Iterable[str], directory: str, random: str, *, takes_over: bool) -> str | None:
    """The name of a new writer behind all known ones; None where another broker wrote last and this one does not take over."""
    last = latest_writer(known)
    own = directory[:WRITER_DIRECTORY_CHARS]
    if last and not takes_over and last.split("-")[1] != own:
        return None
    number = int(last.split("-")[0]) + 1 if last else 1
    return f"{number:010d}-{own}-{random}"


def latest_writer(known: Iterable[str]) -> str:
    """The writer that counts; empty where there is none. Other names are passed over."""
    return max((name for name in known if _WRITER.fullmatch(name)), default="")


def written_by(writer: str, random: str) -> str:
    """The end of a file's name, before its suffix; empty where storage is not shared."""
    return f"-{writer}-{random}" if writer else ""


def writer_of(name: str) -> str:
    """Who wrote the file with that name; empty, which sorts before all, for one from before storage was shared."""
    found = _WRITER.findall(name)
    return found[-1] if found else ""
