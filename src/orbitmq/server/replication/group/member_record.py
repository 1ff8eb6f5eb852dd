"""What the directory of a member keeps of its group: which member it is, in which epoch, who wrote its log, where the others were.

Part of `config/orbitmq-replication.json`.

Rules of this file
1. A directory stays the member that it was. One with other names is another member, and refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import ConfigurationError
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks
from orbitmq.replication.kept_state import DIRECTORY_ID_BYTES, KeptMember
from orbitmq.replication.replica_steps import KeptEpoch
from orbitmq.server.replication.engines.group_engine import MemberPlace
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.worker import Worker


class MemberRecord:
    """Of one directory. Raises StoreDamagedError for a file that cannot be read, ConfigurationError where it is another member."""

    def __init__(
        self, file: ConfigFile, group: str, name: str, worker: Worker, deadlines: Deadlines, clock: Clock
    ) -> None:
        self.file: Final = KeptFile(file, os.urandom(DIRECTORY_ID_BYTES).hex(), worker, deadlines, clock)
        self._group: Final = group
        self._name: Final = name
        self.places: dict[str, str] = {}
        """Ports of the other members, by name, as they were heard last."""
        kept = self.file.state.member
        if kept is not None and (kept.group, kept.name) != (group, name):
            raise ConfigurationError(
                f"this directory is member {kept.name} of group {kept.group}, and is to be member {name} of {group}",
                remedy="start it with the names that it had, or with another directory",
            )
        if kept is not None:
            self.places = dict(kept.places)

    @property
    def directory(self) -> str:
        """Its id."""
        return self.file.state.directory

    @property
    def epoch(self) -> KeptEpoch | None:
        """None where it was no member yet."""
        kept = self.file.state.member
        return None if kept is None else KeptEpoch(kept.epoch, kept.serial, kept.boot)

    @property
    def marks(self) -> tuple[EpochMark, ...]:
        """Who wrote the log; nothing where it is that of a pair yet."""
        return () if self.file.state.member is None else self.file.state.epochs.marks

    @property
    def trouble(self) -> str:
        """Why the file is older than what is known; empty where it is not."""
        return self.file.trouble

    def keep(self, epoch: KeptEpoch, marks: tuple[EpochMark, ...], done: Callable[[str], None]) -> None:
        """`done` is told when it is durable, with why it is not, empty where it is."""
        state = self.file.state
        state.member = KeptMember(self._group, self._name, *epoch, places=dict(self.places))
        state.epochs = EpochMarks(marks)
        self.file.save(done)

    async def keep_first(self, epoch: KeptEpoch | None, marks: tuple[EpochMark, ...]) -> str:
        """As `keep`, of a directory that becomes a member; None: it does not."""
        if epoch is None:
            self.file.state.member = None
            return await self.file.saved()
        return await self.file.saved(lambda done: self.keep(epoch, marks, done))

    def are_at(self, others: Mapping[str, MemberPlace], members: Collection[str] | None) -> None:
        """The others are there now; of `members`, where those are known, who is not named may be where it was, and nobody else is. Their
        main ports are kept too: a start that meets damage in the log asks there."""
        before = {name: port for name, port in self.places.items() if members is None or name in members}
        known = {**before, **{name: place.ha_address for name, place in others.items()}}
        state, is_news = self.file.state, known != self.places
        for place in others.values():
            is_news = state.note_copy(place.address) or is_news
        if is_news and state.member is not None:
            state.member.places = known
            self.file.save()
        self.places = known
