"""The life of a leader's tables and of a copy that gets the bytes of its log, from a seed.

Topics, groups, offsets, users and whatever else a new leader has to know change at random; messages fill log files, which go when nothing
in them is needed; either broker stops, crashes, loses or finds changed files. After each exchange the tables of the copy are those of the
leader, but for what is gathered; when a second has passed, all of them. Nothing that was recorded is lost by a crash of the leader.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.crash.harness import quiet, scratch
from tests.worlds.table_pair import SETTINGS, TableBroker, TablePair

from orbitmq.access.users import User, UserType
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.broker.table_records.table_records import TableRecords
from orbitmq.broker.topics import TopicTable
from orbitmq.protocol.remoting.bodies import SetMessageRequestModeRequest, SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.store.message import NewMessage
from orbitmq.store.settings import FlushDiskType

STEPS = 60
SEEDS = 12
GATHERED = {"offsets", "poppedInOrder", "queueLocks"}
SECOND = 1_000


class Wrong(AssertionError):
    """The tables differ."""


class Life:
    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        flush = self.random.choice([FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH])
        settings = msgspec.structs.replace(SETTINGS, flush_disk_type=flush)
        self.pair = TablePair(root, settings)
        self.leader, self.copy = self.pair.leader, self.pair.copy
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (8, self.make_topic), (3, self.delete_topic), (5, self.make_group), (3, self.delete_group), (2, self.forbid),
            (10, self.commit), (2, self.drop_offsets), (2, self.set_mode), (3, self.change_user), (4, self.pop_in_order),
            (12, self.send), (8, self.pass_second), (10, self.compare), (4, self.clean), (2, self.leader_stops),
            (2, self.leader_crashes), (1, self.copy_stops), (2, self.copy_crashes), (1, self.edit), (1, self.lose_files),
            (1, self.seed),
        ]  # fmt: skip

    def run(self, count: int) -> None:
        weights = [weight for weight, _ in self.steps]
        for _ in range(count):
            self.random.choices([step for _, step in self.steps], weights)[0]()
        self.compare_all()
        self.take_over()

    # --- changes ------------------------------------------------------------------------------------------------------

    def name(self, kind: str) -> str:
        return f"{kind}{self.random.randrange(6)}"

    def make_topic(self) -> None:
        config = TopicConfig(topic_name=self.name("t"), read_queue_nums=self.random.randrange(1, 5), write_queue_nums=2)
        self.leader.broker.topics.put(config, {})
        self.leader.turn()

    def delete_topic(self) -> None:
        answer = self.leader.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": self.name("t")})
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def make_group(self) -> None:
        self.leader.broker.groups.put(
            SubscriptionGroupConfig(group_name=self.name("g"), retry_max_times=self.random.randrange(5))
        )
        self.leader.turn()

    def delete_group(self) -> None:
        fields = {"groupName": self.name("g"), "cleanOffset": self.random.random() < 0.5}
        self.leader.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)

    def forbid(self) -> None:
        self.leader.broker.groups.forbid_reading(self.name("g"), self.name("t"), forbidden=self.random.random() < 0.6)
        self.leader.turn()

    def commit(self) -> None:
        for _ in range(self.random.randrange(1, 20)):
            topic, queue_id = self.name("t"), self.random.randrange(2)
            end = self.leader.store.max_offset(topic, queue_id)  # a start cuts what lies beyond
            self.leader.broker.offsets.commit(self.name("g"), topic, queue_id, self.random.randrange(end + 1))
        self.leader.turn()

    def drop_offsets(self) -> None:
        self.leader.broker.offsets.drop_group(self.name("g"))
        self.leader.turn()

    def set_mode(self) -> None:
        mode = SetMessageRequestModeRequest(
            topic=self.name("t"), consumer_group=self.name("g"), mode=self.random.choice(["PULL", "POP"])
        )
        self.leader.call(RequestCode.SET_MESSAGE_REQUEST_MODE, None, mode.encode())

    def change_user(self) -> None:
        name, access = self.name("u"), self.leader.access
        if access.table.user(name) is None:
            access.table.create_at_start(User(name, f"secret{self.random.random()}", UserType.NORMAL))
        elif self.random.random() < 0.5:
            access.table.delete_user(name, None)
        else:
            access.table.update_user(name, None, password=f"secret{self.random.random()}")
        access.changed(name)
        self.leader.turn()

    def pop_in_order(self) -> None:
        key = PopQueue(self.name("t"), self.name("g"), self.random.randrange(2))
        orders, now_ms = self.leader.broker.rooms.pops.orders, self.leader.clock.now_ms()
        begin = self.random.randrange(100)
        orders.give(key, range(begin, begin + 3), now_ms, 60_000, self.random.choice([None, "attempt"]))
        orders.acknowledge(key, begin + self.random.randrange(3), now_ms)
        self.leader.turn()

    def send(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            message = NewMessage(self.name("t"), self.random.randrange(2), bytes(self.random.randrange(30_000)), b"")
            self.leader.store.append(message)
        self.leader.turn()

    # --- time, files, ends --------------------------------------------------------------------------------------------

    def pass_second(self) -> None:
        self.leader.advance(self.random.choice([100, SECOND, 5 * SECOND]))
        if self.random.random() < 0.5:
            self.leader.save_tables()

    def clean(self) -> None:
        """Retention: the oldest file of the leader goes, as soon as nothing in it is needed; and of the copy."""
        segments = self.leader.store.log.sequence.segments
        if len(segments) < 3:
            return
        self.leader.remove_files(before=self.pair.replicate)
        self.copy.remove_files()

    def seed(self) -> None:
        """The copy begins anew, with nothing."""
        self.copy = self.pair.seed_copy()

    def leader_stops(self) -> None:
        self.leader.reopen()

    def leader_crashes(self) -> None:
        """What is recorded is known to the next process: all but what is gathered."""
        before, recorded = self.known(self.leader), self.recorded_offsets()
        self.leader.crash()
        if self.known(self.leader) != before:
            raise Wrong("the leader lost what was recorded")
        if not recorded.items() <= self.recorded_offsets().items():
            raise Wrong("the leader lost offsets that were recorded")

    def recorded_offsets(self) -> dict[str, Any]:
        """Offsets that do not wait to be recorded."""
        offsets = self.leader.broker.offsets
        waiting = set(offsets.changes._keys)
        found = {key: json.loads(offsets.recorded_value(key) or b"{}") for key in offsets.recorded_keys()}
        return {key: queues for key, queues in found.items() if key not in waiting}

    def copy_stops(self) -> None:
        self.copy.reopen()

    def copy_crashes(self) -> None:
        self.copy.crash()

    def edit(self) -> None:
        """RocketMQ, or somebody, changes a table while the broker stands."""
        self.leader.close()
        path = self.leader.root / "config" / "topics.json"
        saved = json.loads(path.read_text())
        table, name = saved["topicConfigTable"], self.name("t")
        if table.pop(name, None) is None:
            table[name] = {"topicName": name, "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
        saved["dataVersion"]["counter"] += 1
        path.write_text(json.dumps(saved))
        self.leader.open()
        if (name in table) != (self.leader.broker.topics.get(name) is not None):
            raise Wrong("the edited file does not count")

    def lose_files(self) -> None:
        self.leader.advance(SECOND)
        before = self.known(self.leader)
        self.leader.close()
        for path in (self.leader.root / "config").iterdir():
            if not path.name.startswith("orbitmqDelay"):
                path.unlink()
        self.leader.open()
        if self.known(self.leader) != before:
            raise Wrong("tables whose files are lost are not as the log says")

    # --- comparing ----------------------------------------------------------------------------------------------------

    def known(self, broker: TableBroker) -> dict[str, Any]:
        return {name: keys for name, keys in broker.tables().items() if name not in GATHERED}

    def compare(self) -> None:
        self.pair.replicate()
        if self.known(self.copy) != self.known(self.leader):
            raise Wrong(f"{self.known(self.copy)} is not {self.known(self.leader)}")
        ends, theirs = (queue_ends(broker) for broker in (self.copy, self.leader))
        if ends != theirs:
            raise Wrong(f"queues end at {ends}, not at {theirs}")

    def compare_all(self) -> None:
        self.leader.advance(2 * SECOND)
        self.pair.replicate()
        ours, theirs = self.copy.tables(), self.leader.tables()
        if ours != theirs:
            raise Wrong(f"{ours} is not {theirs}")

    def take_over(self) -> None:
        """The copy leads, and is followed by what was the leader's place, from nothing."""
        before = self.copy.tables()
        self.leader.close()
        self.copy.leads = True
        self.copy.reopen()
        self.copy.advance(2 * SECOND)
        after = self.copy.tables()
        for name in before:
            if name != "offsets" and name != "queueLocks" and before[name] != after[name]:
                raise Wrong(f"the new leader has other {name}: {after[name]}, not {before[name]}")
        self.copy.close()


def queue_ends(broker: TableBroker) -> dict[tuple[str, int], tuple[int, int]]:
    """First and next offset of each queue that has had a message."""
    return {
        (queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset)
        for queue in broker.store.queues
        if queue.max_offset
    }


def live(seed: int, steps: int = STEPS) -> None:
    with scratch() as root, quiet():
        Life(root, seed).run(steps)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_copy_knows_what_its_leader_knows(seed: int) -> None:
    live(seed)


# --- planted bugs ---------------------------------------------------------------------------------------------------------


@contextmanager
def kept_group() -> Iterator[None]:
    """A copy keeps groups that were deleted."""
    take = GroupTable._take_one
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            GroupTable, "_take_one", lambda self, key, value: None if value is None else take(self, key, value)
        )
        yield


@contextmanager
def files_that_go_early() -> Iterator[None]:
    """Nothing is recorded anew before its file goes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TableRecords, "lowest_needed", lambda self: None)
        yield


@contextmanager
def lost_offsets() -> Iterator[None]:
    """What is gathered is forgotten instead of recorded."""
    record = TableRecords._record

    def lossy(self: TableRecords, names: dict[str, None]) -> None:
        for name in list(names):
            if names is self._gathered and name == "offsets":
                self._tables[name].changes.take(2)
        record(self, names)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TableRecords, "_record", lossy)
        yield


@contextmanager
def record_of_a_later_turn() -> Iterator[None]:
    """Changes are recorded when the next turn ends."""
    end_turn = TableRecords.end_turn

    def late(self: TableRecords) -> None:
        waiting, self._at_once = getattr(self, "_late", {}), waiting_of(self)
        self._late = self._at_once  # type: ignore[attr-defined]
        self._at_once = waiting
        end_turn(self)

    def waiting_of(self: TableRecords) -> dict[str, None]:
        return dict(self._at_once)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TableRecords, "end_turn", late)
        yield


@contextmanager
def forgotten_file() -> Iterator[None]:
    """The log has the last word over files that were changed since."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TopicTable, "is_newer_than", lambda self, version: False)
        yield


@pytest.mark.parametrize(
    "bug",
    [kept_group, files_that_go_early, lost_offsets, record_of_a_later_turn, forgotten_file],
    ids=lambda bug: bug.__name__,
)
def test_a_planted_bug_is_found(bug: Callable[[], Any]) -> None:
    with bug():
        for seed in range(3 * SEEDS):
            try:
                live(seed)
            except AssertionError:
                return
    pytest.fail("no life went wrong")
