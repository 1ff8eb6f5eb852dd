"""Who writes to storage that brokers share: the name of each tenure as its writer, and what that says of a file.

    writers/<number>-<directory of the broker>-<random>     one file of each writer; the last name in order is the one that counts
    landing/<first>-<next>-<writer>-<random>.parquet        names of files end with who wrote them, so no two are written under one name

Rules of this file
1. Pure: names in, names out. Reading and writing them is `arrow_tier`.
2. A broker that led before goes on only while nobody else wrote his name behind its own. One that followed takes over from whoever led:
   somebody decided that it leads.
3. In a replicated group the epoch decides, which belongs to one process: its number stands in the writer's, beyond all of pairs. Who leads
   in an earlier epoch never comes behind who leads in a later one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

WRITERS: Final = "writers"
WRITER_DIRECTORY_CHARS: Final = 16
"""Of the id of a broker's directory, in the name of a writer."""

EPOCHS_FROM: Final = 5_000_000_000
"""Added to an epoch of a group, which has 31 bits, in the number of a writer of ten digits: a group's come behind those of a pair."""

_WRITER: Final = re.compile(r"[0-9]{10}-[0-9a-f]{16}-[0-9a-f]{8}")


def next_writer(
    known: Iterable[str], directory: str, random: str, *, takes_over: bool, epoch: int | None = None
) -> str | None:
    """The name of a new writer behind all known ones; None where another broker wrote last and this one does not take over, or, with an
    epoch, where one of a later epoch did. Within an epoch its process keeps its name."""
    last = latest_writer(known)
    own = directory[:WRITER_DIRECTORY_CHARS]
    last_number = int(last.split("-")[0]) if last else 0
    if epoch is None:
        if last and not takes_over and last.split("-")[1] != own:
            return None
        return f"{last_number + 1:010d}-{own}-{random}"
    number = EPOCHS_FROM + epoch
    if last_number < number:
        return f"{number:010d}-{own}-{random}"
    return last if last_number == number and last.split("-")[1] == own else None


def latest_writer(known: Iterable[str]) -> str:
    """The writer that counts; empty where there is none. Other names are passed over."""
    return max((name for name in known if _WRITER.fullmatch(name)), default="")


def remedy_for(last: str, writer: str) -> str:
    """What a person does where a broker is not the writer that counts, which is `last`, but `writer` or none."""
    if not last and writer and int(writer.split("-")[0]) >= EPOCHS_FROM:
        return "let another member of the group lead, which writes a name of its own: orbitmq replica switch"
    if last and int(last.split("-")[0]) >= EPOCHS_FROM:
        return (
            "a member of a group that was deposed follows the next leader by itself; a broker that is in no group any more writes again "
            f"when {WRITERS}/ is removed from the storage"
        )
    return (
        "if that one leads, start this one as its slave (brokerRole=SLAVE) on an empty directory; if this one is to lead, stop that "
        f"one and remove {WRITERS}/ from the storage"
    )


def written_by(writer: str, random: str) -> str:
    """The end of a file's name, before its suffix; empty where storage is not shared."""
    return f"-{writer}-{random}" if writer else ""


def writer_of(name: str) -> str:
    """Who wrote the file with that name; empty, which sorts before all, for one from before storage was shared."""
    found = _WRITER.findall(name)
    return found[-1] if found else ""
