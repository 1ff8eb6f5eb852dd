"""What a broker keeps about copies beside its log: the id of its directory, whose slaves it knows, and who wrote its log from where on.

A JSON file, `config/orbitmq-replication.json`. A broker that never had a copy and never was one has none.

Rules of this file
1. The id of a directory is not that of its log (`orbitmq.id`), which all copies share.
2. Nothing here reads or writes a file; a table that is not sound is refused as a whole.
"""

from __future__ import annotations

from typing import Any

import msgspec

from orbitmq.errors import ConfigurationError, StoreDamagedError
from orbitmq.limits.replication import COPIES_MAX
from orbitmq.replication.epoch_marks import EpochMark, EpochMarks
from orbitmq.replication.settings import BrokerKind

REPLICATION_FILE = "orbitmq-replication.json"
DIRECTORY_ID_BYTES = 16


class FarStorage(msgspec.Struct, omit_defaults=True):
    """What is known of the storage of the far tier that copies share."""

    mark: str = ""
    """Its mark; empty where none is shared."""
    url: str = ""
    """Where it was when the mark was read."""
    sharers: list[int] = []
    """Ids of slaves that have said that they share it."""
    followed: bool = False
    """This broker has followed another one that writes there, and has not written there since."""
    named: bool = False
    """The view of its replicated group names it."""


class Demoted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slave, whatever its settings say. `master` and `port` are main port and port for slaves of the master that it was told to follow;
    empty where nobody said so."""

    id: int
    master: str = ""
    port: str = ""


class KeptMember(msgspec.Struct, omit_defaults=True):
    """This directory is a member of a replicated group."""

    group: str
    name: str
    epoch: int = 0
    serial: int = 0
    boot: str = ""
    """As in `KeptEpoch`."""
    places: dict[str, str] = {}
    """Where the other members were reached when that was last heard: ports for members, by name."""


class KeptState(msgspec.Struct):
    directory: str
    """32 hexadecimal digits, made once at random."""
    slaves: dict[int, str] = {}
    """The directory of each slave that has followed, by its id."""
    epochs: EpochMarks = msgspec.field(default_factory=EpochMarks)
    promoted: BrokerKind | None = None
    """What a slave was made by a person's command, whatever its settings say."""

    demoted: Demoted | None = None
    """What a master was made by a person's command."""

    copies: list[str] = []
    """Main ports (`host:port`) of brokers that have followed this one, or that it has followed, the newest last: who may have its log when
    it is damaged at a start."""

    seeding_until: int = 0
    """Where the log of the master ended when this slave began with nothing: before that it lacks what its master knew. 0 where it was
    there from the beginning."""
    aside: str = ""
    """Directory, within the root, into which the next start puts the store, to begin with nothing; empty where it is not to."""
    aside_end: int = 0
    """With `aside`: where the log of the master ended when that was decided."""
    far: FarStorage = msgspec.field(default_factory=FarStorage)
    member: KeptMember | None = None

    def note_copy(self, address: str) -> bool:
        """A broker there has this log; whether that is news."""
        if not address or address in self.copies:
            return False
        self.copies = [*self.copies, address][-COPIES_MAX:]
        return True

    def table(self) -> dict[str, Any]:
        """As JSON keeps it."""
        return {
            "directory": self.directory,
            **({} if self.promoted is None else {"promoted": self.promoted.value}),
            **({} if self.demoted is None else {"demoted": msgspec.to_builtins(self.demoted)}),
            **({} if not self.seeding_until else {"seedingUntil": self.seeding_until}),
            **({} if not self.aside else {"aside": self.aside, "asideEnd": self.aside_end}),
            **({} if not self.copies else {"copies": self.copies}),
            **({} if self.far == FarStorage() else {"far": msgspec.to_builtins(self.far)}),
            **({} if self.member is None else {"member": msgspec.to_builtins(self.member)}),
            "epochs": [
                [one.epoch, one.start, one.claim] if one.claim else [one.epoch, one.start] for one in self.epochs.marks
            ],
            "slaves": {str(slave_id): directory for slave_id, directory in sorted(self.slaves.items())},
        }


class _Table(msgspec.Struct):
    directory: str
    epochs: list[list[int | str]] = []
    slaves: dict[int, str] = {}
    promoted: BrokerKind | None = None
    demoted: Demoted | None = None
    seeding_until: int = msgspec.field(default=0, name="seedingUntil")
    aside: str = ""
    aside_end: int = msgspec.field(default=0, name="asideEnd")
    copies: list[str] = []
    far: FarStorage = msgspec.field(default_factory=FarStorage)
    member: KeptMember | None = None


def refuse_member(table: object) -> None:
    """ConfigurationError where the directory of a group's member is to be a broker of its own: it would serve what its group never
    confirmed, and what it takes would be cut when it comes back. StoreDamagedError for a table that is not sound."""
    member = read_state(table, "").member
    if member is not None:
        raise ConfigurationError(
            f"this directory is member {member.name} of the replicated group {member.group}, and replicationEngine is not set",
            remedy="set replicationEngine and replicaName as before; where it is to be a broker of its own for good, remove it from the "
            f"group first, then `member` from config/{REPLICATION_FILE}",
        )


def begun_anew(table: dict[str, Any]) -> dict[str, Any]:
    """The table of a directory whose store was put aside: a slave as before, which keeps its id, so that its master knows it again, and
    lacks what that store had. A member of a group joins as a new directory. StoreDamagedError for a table that is not sound."""
    state = read_state(table, "")
    if state.member is not None:
        return KeptState(state.directory, copies=state.copies).table()
    return KeptState(state.directory, demoted=state.demoted, copies=state.copies, seeding_until=state.aside_end).table()


def withdrawn(table: dict[str, Any]) -> dict[str, Any]:
    """The table of a directory whose store is not to be put aside."""
    return {name: value for name, value in table.items() if name not in ("aside", "asideEnd")}


def read_state(table: object, new_directory: str) -> KeptState:
    """`table` as it was read, None where there is none. StoreDamagedError where it cannot be what `KeptState.table` gave."""
    if table is None:
        return KeptState(new_directory)
    try:
        read = msgspec.convert(table, _Table, strict=False)
        marks = EpochMarks(msgspec.convert(one, EpochMark, strict=False) for one in read.epochs)
    except (msgspec.ValidationError, ValueError) as error:
        raise StoreDamagedError(
            f"{REPLICATION_FILE} cannot be read: {error}",
            remedy="restore it, or remove it: then this broker knows neither its slaves nor who wrote its log from where on",
        ) from error
    return KeptState(
        directory=read.directory,
        slaves=dict(read.slaves),
        epochs=marks,
        promoted=read.promoted,
        demoted=read.demoted,
        copies=read.copies,
        seeding_until=read.seeding_until,
        aside=read.aside,
        aside_end=read.aside_end,
        far=read.far,
        member=read.member,
    )
