"""What a member of a replicated group asks an engine: five calls, which etcd, Kubernetes or ZooKeeper could answer.

    call              what it is for
    read              the view of a group, as it is now
    compare_and_set   the only way to change it
    watch             a reason to read
    keep_present      where this member is reached
    places            where the others are

Rules of this file
1. Whoever leads is decided by `compare_and_set` alone. Presence and watches run on time, and decide nothing.
2. An engine tells what it read, or raises EngineError. What it read before, or what it thinks became of a question, is no answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

import msgspec

from orbitmq.errors import OrbitError
from orbitmq.replication.view import View


class EngineError(OrbitError):
    """No answer of an engine, or none that can be believed. Whether it did what it was asked is not known."""

    def __init__(self, what: str, where: str, why: str, remedy: str) -> None:
        """What was asked, of which engine, why there is no answer, and what a person can do."""
        super().__init__(f"{what} at {where}: {why}", remedy=remedy)
        self.what = what
        self.where = where
        self.why = why


class Held(NamedTuple):
    """What an engine holds of a group. Revision 0 and no view: nothing. Each change of the view gives it a greater revision."""

    view: View | None
    revision: int


class MemberPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a member is reached, and what it says that it is. Whoever connects there asks again: this is what an engine was told."""

    name: str
    """In the group's view."""
    address: str
    """Main port, `host:port`."""
    ha_address: str
    """Port for the other members, `host:port`."""
    store_id: str
    """Of the directory: 32 hexadecimal digits."""
    version: str
    """Of the program."""
    claim: str = ""
    """Of the process, as in `View.claim`: two with one name are told apart by it."""
    far: str = ""
    """The mark that it reads in the storage of its far tier, while the view names none; empty where it reads none."""


class GroupEngine(Protocol):
    async def read(self, group: str) -> Held:
        """What is held after this was asked: of no cache, and of no part of the engine that lags behind. Raises EngineError."""

    async def compare_and_set(self, group: str, revision: int, view: View) -> Held:
        """Put `view` where the group's has `revision` still; 0: where there is none. What is held afterwards, whether it was put or not.
        Raises EngineError, and then it may have been put, or may yet be."""

    def watch(self, group: str) -> AsyncIterator[None]:
        """Something may have changed, view or places: read. Once when it begins to hear, and again after each time without a connection,
        which it makes anew itself. Raises nothing, and goes on until the engine is closed."""

    async def keep_present(self, group: str, place: MemberPlace) -> None:
        """Let `places` name this one, for as long as this runs: until it is cancelled. What the engine lost is told to it again. Raises
        nothing for an engine that does not answer. A process that ends without a word is named for some seconds more."""

    async def places(self, group: str) -> tuple[MemberPlace, ...]:
        """Who is present, by name. Raises EngineError."""

    async def aclose(self) -> None:
        """Give up what is under way, and close connections."""
