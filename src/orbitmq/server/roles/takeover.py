"""What a store may hold that this version cannot carry on, one of RocketMQ mostly: a list of facts, a small rule for each.

Rules of this file
1. A store with one of them is refused before anything listens, with what was found, how much of it and what to do; it is never
   served as if that were not there.
2. What can be seen without opening is looked for first: such a store is left untouched. The others are seen in the recovered
   queues; that store is left as after an orderly stop, and RocketMQ carries on from there.
3. A rule reads and decides; it changes nothing. Reading tools (`orbitmq store ...`) work on any store, and name the same facts.

Source: RocketMQ store format; broker, transaction check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from orbitmq.access.users import ACCESS_FILE
from orbitmq.errors import ConfigurationError, OrbitError
from orbitmq.protocol.names import HALF_TOPIC, TRANSACTION_GROUP
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import Files

ROCKSDB_FILE: Final = "CURRENT"
"""Every RocksDB database has a file of this name, which names its manifest."""
ROCKSDB_TABLE, ROCKSDB_LOG = ".sst", ".log"
"""How the names of its files end that hold keys: tables, and logs of what is in no table yet."""

USER_FOLDERS: Final = ("config/users", "config/acls")
"""Databases of a RocketMQ broker that asks callers who they are."""

FAR_TABLE_FILE: Final = "orbitmq.far-table"
"""Catalog of a cluster's far table, which versions before this one had."""


class Fact(NamedTuple):
    """Something that only another broker can carry on: `found` says what and how much."""

    found: str
    remedy: str


def _fact(count: int, found: str, remedy: str) -> Fact | None:
    """None when there is nothing of it."""
    return Fact(found, remedy) if count else None


class StoreFolder(NamedTuple):
    """A store directory, and how its files are read."""

    root: Path
    files: Files

    def table(self, name: str) -> dict[str, Any]:
        """A configuration table; empty when there is none, or none that can be read: who needs it says so."""
        try:
            table: object = ConfigFile(self.files, self.root / "config" / name).load()
        except OrbitError:
            return {}
        return table if isinstance(table, dict) else {}

    def folders(self, path: Path) -> list[Path]:
        return [path / name for name in self.files.list_dir(path) if self.files.is_dir(path / name)]

    def queue_folders(self, name: str) -> int:
        """Queues with files below `<name>/<topic>/<queue>`."""
        queues = (queue for topic in self.folders(self.root / name) for queue in self.folders(topic))
        return sum(bool(self.files.list_dir(queue)) for queue in queues)


class QueueEnds(Protocol):
    """As much of a consume queue as is asked."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def min_offset(self) -> int: ...
    @property
    def max_offset(self) -> int: ...


# --- seen without opening the store -------------------------------------------------------------------------------------


def inner_batches(place: StoreFolder) -> Fact | None:
    queues = place.queue_folders("batchconsumequeue")
    return _fact(
        queues,
        f"{queues} queues of batches stored as one record each (topics with queue.type=BatchCQ)",
        "let their consumers finish with RocketMQ, then delete these topics",
    )


def rocksdb(place: StoreFolder) -> Fact | None:
    """Configuration, consume queues, timers, transactions or POP in RocksDB, whichever release put them where.

    From 5.4 on RocketMQ makes `rocksdbstore` at every start, and leaves it without a key unless it is told to use it.
    """
    inside = [place.root, *place.folders(place.root), *place.folders(place.root / "config")]
    found = [str(folder.relative_to(place.root)) for folder in inside if _has_keys(place, folder)]
    found = [name for name in found if name not in USER_FOLDERS]
    return _fact(
        len(found),
        f"{len(found)} RocksDB databases ({', '.join(found)})",
        "configuration: write it to JSON with RocketMQ's mqadmin rocksDBConfigToJson; queues, timers, transactions and POP: go "
        "back to storeType=default and RocketMQ's files there, and let what is pending finish; then remove these folders",
    )


def users(place: StoreFolder) -> Fact | None:
    """Users and policies in RocksDB. A table of ours beside them counts alone, as a start says."""
    found = [] if place.files.exists(place.root / "config" / ACCESS_FILE) else users_of_rocketmq(place)
    return _fact(
        len(found),
        f"users and policies that only RocketMQ reads ({', '.join(found)})",
        "copy them with RocketMQ's mqadmin copyUser and copyAcl to a broker of this version on an empty directory, and put its "
        f"config/{ACCESS_FILE} here; or remove these folders: then the store has no users",
    )


def users_of_rocketmq(place: StoreFolder) -> list[str]:
    """The databases of users and policies in which there are some."""
    return [name for name in USER_FOLDERS if _has_keys(place, place.root / name)]


def _has_keys(place: StoreFolder, folder: Path) -> bool:
    """Whether this is a RocksDB database that has a table, or anything in a log."""
    return place.files.exists(folder / ROCKSDB_FILE) and any(
        name.endswith(ROCKSDB_TABLE) or (name.endswith(ROCKSDB_LOG) and place.files.file_size(folder / name) > 0)
        for name in place.files.list_dir(folder)
    )


def key_value_pop(place: StoreFolder) -> Fact | None:
    names = place.files.list_dir(place.root / "kvStore")
    return _fact(
        len(names),
        f"kvStore with {len(names)} files: messages that were popped and not acknowledged",
        "set popConsumerKVServiceEnable=false in RocketMQ, let consumers acknowledge or the messages return, and remove kvStore",
    )


def static_topics(place: StoreFolder) -> Fact | None:
    topics = place.table("topicQueueMapping.json").get("topicQueueMappingDetailMap") or {}
    return _fact(
        len(topics),
        f"{len(topics)} static topics, whose queues and offsets are mapped over several brokers",
        "delete them with RocketMQ when they are consumed, and use ordinary topics",
    )


def dledger(place: StoreFolder) -> Fact | None:
    logs = [folder.name for folder in place.folders(place.root) if folder.name.startswith("dledger-")]
    return _fact(
        len(logs),
        f"{len(logs)} DLedger logs ({', '.join(logs)}) instead of a commit log",
        "let RocketMQ serve them until they are consumed, and begin with an empty directory",
    )


def far_table(place: StoreFolder) -> Fact | None:
    return _fact(
        int(place.files.exists(place.root / FAR_TABLE_FILE)),
        f"the catalog of a cluster's far table ({FAR_TABLE_FILE}), whose rows this version would never deliver",
        "start the version before until no row is left in its files (orbitmq timer table status), stop it, and remove the catalog; "
        "then schedule further rows with this version",
    )


FILE_RULES: Final[tuple[Callable[[StoreFolder], Fact | None], ...]] = (
    inner_batches,
    rocksdb,
    users,
    key_value_pop,
    static_topics,
    dledger,
    far_table,
)


# --- seen in its queues -------------------------------------------------------------------------------------------------


def undecided_halves(place: StoreFolder, queues: Iterable[QueueEnds]) -> Fact | None:
    """Half messages in further queues of their topic, which somebody gave it, beyond the point up to which RocketMQ's check has seen every
    transaction decided. What is undecided in the first queue is carried on."""
    further = (queue for queue in queues if queue.topic == HALF_TOPIC and queue.queue_id)
    count = _beyond(place, further, TRANSACTION_GROUP)
    return _fact(
        count,
        f"up to {count} undecided transactions in further queues of {HALF_TOPIC}; RocketMQ itself makes one",
        "let RocketMQ finish them first, then stop it and start orbitmq; nothing was lost",
    )


def _beyond(place: StoreFolder, queues: Iterable[QueueEnds], group: str) -> int:
    """Messages behind the offsets of `group`."""
    table = place.table("consumerOffset.json").get("offsetTable") or {}
    return sum(
        max(
            queue.max_offset
            - max(int(table.get(f"{queue.topic}@{group}", {}).get(str(queue.queue_id), "0")), queue.min_offset),
            0,
        )
        for queue in queues
    )


QUEUE_RULES: Final[tuple[Callable[[StoreFolder, Iterable[QueueEnds]], Fact | None], ...]] = (undecided_halves,)


# --- all of them --------------------------------------------------------------------------------------------------------


def facts_in_files(root: Path, files: Files) -> list[Fact]:
    place = StoreFolder(root, files)
    return [fact for rule in FILE_RULES if (fact := rule(place)) is not None]


def facts_in_queues(root: Path, files: Files, queues: Iterable[QueueEnds]) -> list[Fact]:
    place, known = StoreFolder(root, files), list(queues)
    return [fact for rule in QUEUE_RULES if (fact := rule(place, known)) is not None]


def facts_of(root: Path, files: Files, commit_log: Path | None = None) -> list[Fact]:
    """All facts of a store that is not open, for tools that only read. Those of its queues are left out when it has none that
    can be read."""
    from orbitmq.store.stat import stat_store  # 15 ms, which a server that starts does not spend

    facts = facts_in_files(root, files)
    try:
        queues = stat_store(root, files, commit_log=commit_log).queues
    except (OrbitError, OSError):
        return facts
    return facts + facts_in_queues(root, files, queues)


def refuse(root: Path, facts: list[Fact]) -> None:
    """Raises ConfigurationError when there are any."""
    if facts:
        raise ConfigurationError(
            f"the store {root} holds " + "; and ".join(fact.found for fact in facts),
            remedy="; ".join(dict.fromkeys(fact.remedy for fact in facts)),
        )
