"""What a broker has to know stands in its log: a copy that gets the bytes of the log has the tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.broker.conftest import ListPeer
from tests.worlds.table_pair import SETTINGS, TablePair

from orbitmq.access.users import User, UserType
from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.broker.saved_access import AccessFile, SavedAccess
from orbitmq.broker.table_records import last_words, table_records
from orbitmq.broker.table_records.record_form import Changed
from orbitmq.errors import OrbitError
from orbitmq.limits.broker import QUEUE_LOCK_LIFE_NS
from orbitmq.protocol.names import TABLES_TOPIC
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.protocol.remoting.bodies import (
    LockBatchRequest,
    MessageQueue,
    SetMessageRequestModeRequest,
    SubscriptionGroupConfig,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch, topic_mark
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.message import NewMessage
from orbitmq.store.settings import FlushDiskType

SECOND = 1_000


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[TablePair]:
    made = TablePair(tmp_path)
    yield made
    made.close()


def make_topic(pair: TablePair, name: str = "orders", queues: int = 4, *, perm: int = 6) -> None:
    fields: dict[str, Any] = {
        "topic": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": perm, "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0, "order": False, "defaultTopic": "TBW102",
    }  # fmt: skip
    assert pair.leader.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == ResponseCode.SUCCESS


def delete_topic(pair: TablePair, name: str = "orders") -> None:
    assert pair.leader.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name}).code == ResponseCode.SUCCESS


def send(
    pair: TablePair,
    topic: str = "orders",
    queue_id: int = 0,
    body: bytes = b"x",
    properties: dict[str, str] | None = None,
) -> Command:
    fields = {
        "a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 0, "h": 0, "j": 0, "k": False, "m": False,
        "i": encode_properties(properties or {}).decode(),
    }  # fmt: skip
    answer = pair.leader.call(RequestCode.SEND_MESSAGE_V2, fields, body)
    assert answer.code == ResponseCode.SUCCESS
    return answer


def make_group(pair: TablePair, name: str = "g", **more: Any) -> None:
    body = json.dumps({"groupName": name, **more}).encode()
    assert pair.leader.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body).code == ResponseCode.SUCCESS


def record_count(pair: TablePair) -> int:
    return pair.leader.store.max_offset(TABLES_TOPIC, 0)


def assert_equal(pair: TablePair) -> None:
    pair.replicate()
    assert pair.copy.tables() == pair.leader.tables()


def test_a_new_broker_writes_nothing(pair: TablePair) -> None:
    before = pair.leader.store.log.end
    pair.leader.advance(10 * SECOND)
    pair.leader.reopen()
    assert pair.leader.store.log.end == before


def test_topics_and_groups_are_known_to_a_copy(pair: TablePair) -> None:
    make_topic(pair)
    make_group(pair, retryMaxTimes=3)
    make_topic(pair, queues=8)
    pair.leader.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "g", "topic": "orders", "readable": False})
    assert_equal(pair)
    copied = pair.copy.broker
    topic, group = copied.topics.get("orders"), copied.groups.known("g")
    assert topic is not None
    assert topic.read_queue_nums == 8
    assert group is not None
    assert group.retry_max_times == 3
    assert copied.groups.reading_forbidden("g", "orders")
    assert copied.topics.version == pair.leader.broker.topics.version


def test_what_a_copy_learns_is_in_its_files(pair: TablePair) -> None:
    make_topic(pair)
    pair.replicate()
    pair.copy.turn()
    saved = json.loads((pair.copy.root / "config" / "topics.json").read_text())
    assert "orders" in saved["topicConfigTable"]


def test_what_stands_in_files_of_a_copy_and_not_in_its_log_does_not_count(pair: TablePair) -> None:
    """It was a master before, and its last changes were lost with its role."""
    make_topic(pair)
    make_group(pair)
    pair.replicate()
    pair.copy.broker.groups.put(SubscriptionGroupConfig(group_name="never_recorded"))
    pair.copy.save_tables()
    pair.copy.reopen()
    assert "never_recorded" in pair.copy.tables()["groups"]
    pair.copy.records.detach()
    assert "never_recorded" not in pair.copy.tables()["groups"]
    assert_equal(pair)


def test_a_topic_that_a_send_makes_stands_in_the_same_turn(pair: TablePair) -> None:
    send(pair, "made-by-a-send")
    pair.replicate()
    assert pair.copy.broker.topics.get("made-by-a-send") is not None
    assert pair.copy.store.max_offset("made-by-a-send", 0) == 1


def test_an_answer_waits_for_the_record(pair: TablePair) -> None:
    """What was answered is confirmed: a copy that has what is confirmed knows it."""
    make_topic(pair)
    end = pair.leader.store.confirm_offset
    pair.replicate(until=end)
    assert pair.copy.broker.topics.get("orders") is not None


def test_a_deleted_topic_and_its_messages_are_gone_at_a_copy(pair: TablePair) -> None:
    make_topic(pair)
    for number in range(3):
        send(pair, queue_id=number)
    pair.replicate()
    assert pair.copy.store.queue_ids("orders") == [0, 1, 2]
    delete_topic(pair)
    pair.replicate()
    assert pair.copy.broker.topics.get("orders") is None
    assert pair.copy.store.queue_ids("orders") == []
    assert_equal(pair)


def test_a_topic_that_is_made_again_begins_at_zero_everywhere(pair: TablePair) -> None:
    make_topic(pair)
    for _ in range(5):
        send(pair)
    delete_topic(pair)
    make_topic(pair)
    for _ in range(2):
        send(pair)
    pair.replicate()
    for broker in (pair.leader, pair.copy):
        assert broker.store.max_offset("orders", 0) == 2
        assert len(broker.store.get("orders", 0, 0, 10, 1 << 20).records) >= 1
    pair.leader.crash()
    pair.copy.crash()
    for broker in (pair.leader, pair.copy):
        assert broker.store.max_offset("orders", 0) == 2


def test_a_copy_takes_no_send_for_a_repeat_of_one_to_a_deleted_topic(pair: TablePair) -> None:
    key = {Property.ONCE_SCOPE: "s", Property.ONCE_EPOCH: "1", Property.ONCE_KEY: "k"}
    make_topic(pair)
    send(pair, properties=key)
    pair.replicate()
    memory = pair.copy.idempotence.memory
    assert memory.scope_count == 1
    delete_topic(pair)
    pair.replicate()
    assert memory.ended.position("orders") > 0


def test_nobody_pulls_the_records(pair: TablePair) -> None:
    make_topic(pair)
    make_group(pair)
    fields = {
        "consumerGroup": "g", "topic": TABLES_TOPIC, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    assert pair.leader.call(RequestCode.PULL_MESSAGE, fields).code == ResponseCode.TOPIC_NOT_EXIST
    assert TABLES_TOPIC not in pair.leader.broker.topics.names()


def test_deleting_what_a_crash_took_the_queues_of_is_done_again(pair: TablePair) -> None:
    """The record says that the topic went, whatever lies on the disk."""
    make_topic(pair)
    send(pair)
    delete_topic(pair)
    pair.replicate()
    pair.copy.kill()
    for path in (pair.copy.root / "orbitmq.mark", pair.copy.root / "checkpoint"):
        path.unlink(missing_ok=True)
    pair.copy.open()
    assert pair.copy.store.max_offset("orders", 0) == 0


def test_a_deleted_group_is_gone_at_a_copy(pair: TablePair) -> None:
    make_group(pair)
    pair.replicate()
    pair.leader.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": False})
    pair.replicate()
    assert pair.copy.broker.groups.known("g") is None
    pair.leader.reopen()
    pair.copy.crash()
    assert pair.copy.broker.groups.known("g") is None
    assert pair.leader.broker.groups.known("g") is None


def test_offsets_are_recorded_within_a_second_and_only_when_they_change(pair: TablePair) -> None:
    make_topic(pair)
    before = record_count(pair)
    for offset in range(1, 100):
        pair.leader.broker.offsets.commit("g", "orders", 0, offset)
        pair.leader.turn()
    assert record_count(pair) == before
    pair.leader.advance(1 * SECOND)
    assert record_count(pair) == before + 1
    pair.replicate()
    assert pair.copy.broker.offsets.query("g", "orders", 0) == 99
    pair.leader.advance(10 * SECOND)
    assert record_count(pair) == before + 1
    pair.leader.broker.offsets.commit("g", "orders", 0, 99)
    pair.leader.advance(10 * SECOND)
    assert record_count(pair) == before + 1, "nothing changed"


@pytest.mark.parametrize("ends", ["reopen", "crash"])
def test_what_is_committed_at_a_copy_while_nobody_leads_outlives_its_next_start(pair: TablePair, ends: str) -> None:
    make_topic(pair)
    for _ in range(60):
        send(pair)
    offsets = pair.leader.broker.offsets
    offsets.commit("g", "orders", 0, 10)
    offsets.commit("other", "orders", 0, 50)
    pair.leader.advance(SECOND)
    pair.replicate()
    pair.copy.broker.offsets.commit("g", "orders", 0, 60)
    pair.copy.broker.offsets.commit("new", "orders", 0, 7)
    pair.copy.broker.offsets.commit("other", "orders", 0, 20)
    pair.copy.save_tables()
    getattr(pair.copy, ends)()
    pair.copy.records.detach()  # as a slave begins
    found = [pair.copy.broker.offsets.query(group, "orders", 0) for group in ("g", "new", "other")]
    assert found == [60, 7, 50], "never behind what the log says"
    pair.copy.records.copy_follows(True)
    pair.copy.records.attach(pair.copy.store)
    pair.copy.turn()
    assert b"orbitmqUnrecorded" in (pair.copy.root / "config" / "consumerOffset.json").read_bytes()
    pair.copy.broker.offsets.dirty = True
    pair.copy.save_tables()
    assert b"orbitmqUnrecorded" not in (pair.copy.root / "config" / "consumerOffset.json").read_bytes(), "recorded"


def test_only_pairs_whose_offsets_changed_are_in_a_record(pair: TablePair) -> None:
    for number in range(50):
        pair.leader.broker.offsets.commit(f"g{number}", "orders", 0, 1)
    pair.leader.advance(SECOND)
    end = pair.leader.store.log.end
    pair.leader.broker.offsets.commit("g7", "orders", 0, 2)
    pair.leader.advance(SECOND)
    assert pair.leader.store.log.end - end < 400
    assert_equal(pair)


def test_offsets_beyond_a_turns_part_are_recorded_in_the_next_turns(
    pair: TablePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_records, "TABLE_KEYS_PER_TURN_MAX", 3)
    for number in range(30):
        pair.leader.broker.offsets.commit(f"g{number}", "orders", 0, 1)
    pair.leader.advance(SECOND)
    for _ in range(10):
        pair.leader.advance(1)
    pair.replicate()
    assert all(pair.copy.broker.offsets.query(f"g{number}", "orders", 0) == 1 for number in range(30))


def test_dropped_offsets_are_recorded_in_their_turn(pair: TablePair) -> None:
    pair.leader.broker.offsets.commit("g", "orders", 0, 5)
    pair.leader.advance(SECOND)
    pair.leader.broker.offsets.drop_topic("orders")
    pair.leader.turn()
    pair.replicate()
    assert pair.copy.broker.offsets.query("g", "orders", 0) is None


def test_without_a_copy_nothing_is_recorded(pair: TablePair) -> None:
    pair.leader.records.copy_follows(False)
    pair.leader.turn()
    before = record_count(pair)
    make_topic(pair)
    make_group(pair)
    pair.leader.broker.offsets.commit("g", "orders", 0, 5)
    pair.leader.advance(10 * SECOND)
    assert record_count(pair) == before
    assert pair.leader.records.lowest_needed() is None
    pair.leader.records.copy_follows(True)
    pair.leader.advance(SECOND)
    assert pair.leader.records.lowest_needed() is not None
    assert_equal(pair)
    assert pair.copy.broker.offsets.query("g", "orders", 0) == 5, "everything that was there is recorded first"


def test_without_a_copy_tables_keep_no_file_of_the_log(pair: TablePair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is full they could not be recorded anew, and what keeps files would keep it full."""
    leader = pair.leader
    make_topic(pair)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "write", full)
        leader.records.copy_follows(False)
        leader.turn()
        make_topic(pair, "others")
    leader.advance(10 * SECOND)
    assert leader.records.lowest_needed() is None
    leader.crash()
    assert leader.broker.topics.get("orders") is not None
    assert leader.broker.topics.get("others") is not None


def test_on_a_full_disk_records_of_tables_let_their_file_go_and_come_back(
    pair: TablePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could not be recorded anew, and the disk would be full for ever."""
    leader = pair.leader
    make_topic(pair)
    send(pair)
    leader.broker.offsets.commit("g", "orders", 0, 1)
    leader.advance(SECOND)
    assert_equal(pair)
    leader.save_tables()
    lowest = leader.records.lowest_needed()
    assert lowest is not None
    write = CommitLog.write

    def full(log: CommitLog) -> None:
        if log.has_gathered and leader.store._reserve.is_whole:
            log.discard()
            raise OSError(28, "No space left on device")
        write(log)

    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "write", full)
        leader.store.append(NewMessage("orders", 0, b"too much", b""))
        leader.turn()
        assert leader.store.lacks_room
        leader.records.take_below(lowest + 1, 1)
        leader.turn()
        assert leader.records.lowest_needed() is None
        assert leader.store.lacks_room, "nothing else may use what is set aside"
    assert_equal(pair)
    assert pair.copy.broker.topics.get("orders") is not None, "a copy keeps what it knows"
    leader.crash()
    assert leader.broker.topics.get("orders") is not None, "the file says so"
    assert leader.broker.offsets.query("g", "orders", 0) == 1


def test_tables_are_recorded_again_when_there_is_room(pair: TablePair, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = pair.leader
    make_topic(pair)
    leader.advance(SECOND)
    lowest = leader.records.lowest_needed()
    assert lowest is not None
    leader.store._writability.stop("space", "the disk is full")
    leader.records.take_below(lowest + 1, 1)
    leader.turn()
    assert leader.records.lowest_needed() is None
    make_topic(pair, "others")
    for _ in range(20):
        leader.advance(SECOND)
    assert leader.store.writes_accepted
    assert (leader.records.lowest_needed() or 0) > lowest
    assert_equal(pair)
    assert pair.copy.broker.topics.get("others") is not None


def test_offsets_in_the_file_count_where_none_are_recorded_any_more(pair: TablePair) -> None:
    leader = pair.leader
    send(pair)
    send(pair)
    leader.broker.offsets.commit("g", "orders", 0, 1)
    leader.advance(SECOND)
    leader.is_followed = False
    leader.reopen()
    assert leader.broker.offsets.query("g", "orders", 0) == 1
    leader.broker.offsets.commit("g", "orders", 0, 2)
    leader.advance(10 * SECOND)
    leader.reopen()
    assert leader.broker.offsets.query("g", "orders", 0) == 2


def test_offsets_of_the_last_second_are_all_that_a_crash_repeats(pair: TablePair) -> None:
    for _ in range(9):
        send(pair)
    pair.leader.broker.offsets.commit("g", "orders", 0, 7)
    pair.leader.advance(SECOND)
    pair.leader.broker.offsets.commit("g", "orders", 0, 9)
    pair.leader.crash()
    assert pair.leader.broker.offsets.query("g", "orders", 0) == 7


def finish(pair: TablePair, scope: str, mark: int = 7) -> ResponseCode:
    body = FinishEpoch(scope=scope, epoch=1, mark=mark).encode()
    return ResponseCode(pair.leader.call(RequestCode.FINISH_EPOCH, {}, body).code)


def test_the_keys_of_a_finished_epoch_go_at_a_copy_as_well(pair: TablePair) -> None:
    make_topic(pair)
    for batch in range(5):
        send(pair, properties={Property.ONCE_SCOPE: f"job/{batch}", Property.ONCE_EPOCH: "1", Property.ONCE_KEY: "k"})
    pair.replicate()
    memory = pair.copy.idempotence.memory
    assert memory.scope_count == 5
    for batch in range(4):
        assert finish(pair, f"job/{batch}") == ResponseCode.SUCCESS
    pair.leader.advance(SECOND)
    pair.replicate()
    assert memory.scope_count == 1
    assert dict(memory.finished) == dict(pair.leader.idempotence.memory.finished)
    pair.copy.crash()
    assert dict(pair.copy.idempotence.memory.finished) == dict(pair.leader.idempotence.memory.finished)


def test_epochs_that_were_finished_before_there_was_a_copy_are_known_to_it(tmp_path: Path) -> None:
    pair = TablePair(tmp_path)
    pair.leader.records.copy_follows(False)
    make_topic(pair)
    assert finish(pair, "job/1") == ResponseCode.SUCCESS
    pair.leader.records.copy_follows(True)
    pair.leader.advance(SECOND)
    pair.replicate()
    assert [name for name, _ in pair.copy.idempotence.memory.finished] == ["job/1"]
    pair.close()


def test_an_epoch_that_the_log_does_not_know_as_finished_stays_so(pair: TablePair) -> None:
    make_topic(pair)
    assert finish(pair, "job/1") == ResponseCode.SUCCESS
    pair.leader.reopen()
    assert finish(pair, "job/1", mark=8) == ResponseCode.STALE_EPOCH
    assert finish(pair, "job/2") == ResponseCode.SUCCESS
    pair.leader.advance(SECOND)
    assert_equal(pair)


def test_what_is_forgotten_of_finished_epochs_keeps_no_place_in_the_log(pair: TablePair) -> None:
    make_topic(pair)
    name = f"job/{topic_mark('orders')}@pair"
    assert finish(pair, name) == ResponseCode.SUCCESS
    pair.leader.advance(SECOND)
    assert pair.leader.records._words.place("finishedEpochs", name) is not None
    delete_topic(pair)
    pair.leader.advance(SECOND)
    assert pair.leader.records._words.place("finishedEpochs", name) is None


def test_request_modes_are_known_to_a_copy(pair: TablePair) -> None:
    make_topic(pair)
    make_group(pair)
    body = SetMessageRequestModeRequest(topic="orders", consumer_group="g", mode="POP", pop_share_queue_num=2).encode()
    assert pair.leader.call(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body).code == ResponseCode.SUCCESS
    assert_equal(pair)
    assert pair.copy.tables()["requestModes"]["orders@g"]["mode"] == "POP"


def test_users_are_in_the_log_sealed_and_known_to_a_copy(pair: TablePair) -> None:
    pair.leader.access.table.create_at_start(User("clerk", "secret-word", UserType.NORMAL))
    pair.leader.access.changed("clerk")
    pair.leader.turn()
    pair.replicate()
    copied = pair.copy.access.table.user("clerk")
    assert copied is not None
    assert copied.password == "secret-word"
    store = pair.leader.store
    data = store.log.read(0, store.log.end)
    assert data is not None
    assert b"secret-word" not in bytes(data)
    assert b'"clerk"' in bytes(data)
    before = store.log.end
    pair.leader.reopen()
    assert pair.leader.store.log.end == before, "sealing again is no change"


def test_users_without_a_key_are_not_in_the_log(pair: TablePair) -> None:
    file = AccessFile(pair.leader.files, pair.leader.root / "users.json")
    assert not SavedAccess(file, pair.clock, file).is_recorded


def test_owners_of_queue_locks_are_known_to_a_copy(pair: TablePair) -> None:
    queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
    body = LockBatchRequest(consumer_group="g", client_id="c1", mq_set=queues).encode()
    pair.leader.call(RequestCode.LOCK_BATCH_MQ, None, body)
    pair.replicate()
    now = pair.clock.monotonic_ns()
    assert pair.copy.broker.locks.lock("g", "c2", queues, now).queues == []
    assert pair.copy.broker.locks.lock("g", "c1", queues, now).queues == queues
    assert pair.copy.broker.locks.lock("g", "c2", queues, now + QUEUE_LOCK_LIFE_NS).queues == queues


def test_who_owns_a_queue_is_told_when_the_copies_know(pair: TablePair) -> None:
    """Else a leader that is lost may have told one client so, and the next leader another."""
    broker, store = pair.leader.broker, pair.leader.store
    store.confirmation.hold_for_copies(store.confirm_offset)
    wanted = LockBatchRequest(consumer_group="g", client_id="c1", mq_set=[MessageQueue("orders", "broker-a", 0)])
    command = request(RequestCode.LOCK_BATCH_MQ, None, wanted.encode())
    peer = ListPeer(pair.clock, 40_000)
    for _ in range(2):  # the second time it is a renewal of what nobody else knows yet
        assert broker.handle(command, peer) is None
        broker.end_turn()
        assert peer.sent == []
    store.confirmation.copies_have(store.log.written_end)
    broker.end_turn()
    assert [answer.code for answer in peer.sent] == [ResponseCode.SUCCESS] * 2
    assert broker.handle(command, peer) is not None, "a renewal changes no owner"


def lock(pair: TablePair, client: str, queues: list[MessageQueue]) -> ResponseCode | int:
    body = LockBatchRequest(consumer_group="g", client_id=client, mq_set=queues).encode()
    return pair.leader.call(RequestCode.LOCK_BATCH_MQ, None, body).code


def test_an_owner_keeps_its_queues_where_no_new_one_can_be_recorded(pair: TablePair) -> None:
    first, second = (MessageQueue("orders", "broker-a", number) for number in range(2))
    assert lock(pair, "c1", [first]) == ResponseCode.SUCCESS
    store, broker = pair.leader.store, pair.leader.broker
    store.confirmation.hold_for_copies(store.confirm_offset)
    wanted = LockBatchRequest(consumer_group="g", client_id="c2", mq_set=[second])
    peer = ListPeer(pair.clock, 40_000)
    assert broker.handle(request(RequestCode.LOCK_BATCH_MQ, None, wanted.encode()), peer) is None
    broker.end_turn()
    assert lock(pair, "c1", [first]) == ResponseCode.SUCCESS
    store.confirmation.give_up_waiting()
    broker.end_turn()
    assert [answer.code for answer in peer.sent] == [ResponseCode.SYSTEM_ERROR]


def test_who_lets_a_lock_expire_is_a_new_owner(pair: TablePair) -> None:
    """The copies know by then that nobody has it."""
    queues = [MessageQueue("orders", "broker-a", 0)]
    lock(pair, "c1", queues)
    pair.leader.advance(QUEUE_LOCK_LIFE_NS // 1_000_000)
    before = record_count(pair)
    lock(pair, "c1", queues)
    assert record_count(pair) > before


def test_owners_of_thousands_of_queues_are_recorded_in_parts(pair: TablePair) -> None:
    queues = [MessageQueue("orders", "broker-a", number) for number in range(20_000)]
    wanted = LockBatchRequest(consumer_group="g", client_id="c1", mq_set=queues)
    peer = ListPeer(pair.clock, 40_000)
    pair.leader.broker.handle(request(RequestCode.LOCK_BATCH_MQ, None, wanted.encode()), peer)
    for _ in range(20):
        pair.leader.turn()
    assert [answer.code for answer in peer.sent] == [ResponseCode.SUCCESS]
    assert_equal(pair)
    before = pair.leader.store.log.end
    lock(pair, "c1", queues[:1])
    pair.leader.advance(SECOND)
    assert pair.leader.store.log.end - before < 2_000, "a renewal of one of them"
    pair.leader.advance(QUEUE_LOCK_LIFE_NS // 1_000_000)
    pair.leader.broker.locks._drop_expired(pair.clock.monotonic_ns())
    pair.leader.advance(SECOND)
    assert_equal(pair)
    assert pair.copy.tables()["queueLocks"] == {}


def test_what_is_popped_in_order_is_known_to_a_copy(pair: TablePair) -> None:
    key = PopQueue("orders", "g", 0)
    orders = pair.leader.broker.rooms.pops.orders
    orders.give(key, [5, 6, 7], pair.clock.now_ms(), 60_000, "attempt")
    orders.acknowledge(key, 6, pair.clock.now_ms())
    pair.leader.advance(SECOND)
    pair.replicate()
    copied = pair.copy.broker.rooms.pops.orders
    assert copied.blocks(key, "other", pair.clock.now_ms())
    assert not copied.blocks(key, "attempt", pair.clock.now_ms())
    assert copied._batches[key] == orders._batches[key]


def test_level_lists_are_known_to_a_copy(pair: TablePair) -> None:
    pair.leader.close()
    pair.clock.advance(SECOND)
    pair.leader.levels = "1s 7s"
    pair.leader.open()
    pair.replicate()
    assert [period.levels for period in pair.leader.history.periods] == ["1s 5s", "1s 7s"]
    assert pair.copy.history.periods[:2] == pair.leader.history.periods


def test_a_copy_has_the_identity_of_its_log(pair: TablePair) -> None:
    make_topic(pair)
    pair.replicate()
    assert pair.copy.identity.text == pair.leader.identity.text
    pair.copy.reopen()
    pair.leader.reopen()
    assert pair.copy.identity.text == pair.leader.identity.text
    assert (pair.copy.root / "orbitmq.id").read_text().strip() == pair.leader.identity.text


def test_a_file_that_names_another_store_is_written_anew(pair: TablePair, caplog: pytest.LogCaptureFixture) -> None:
    make_topic(pair)
    name = pair.leader.identity.text
    pair.leader.close()
    (pair.leader.root / "orbitmq.id").write_text("ab" * 16)
    pair.leader.open()
    assert pair.leader.identity.text == name
    assert "the log has the last word" in caplog.text
    pair.leader.reopen()
    assert (pair.leader.root / "orbitmq.id").read_text().strip() == name


def test_lost_files_of_tables_are_made_from_the_log(pair: TablePair) -> None:
    make_topic(pair)
    make_group(pair)
    send(pair)
    pair.leader.broker.offsets.commit("g", "orders", 0, 1)
    pair.leader.advance(SECOND)
    before = pair.leader.tables()
    pair.leader.close()
    for path in (pair.leader.root / "config").iterdir():
        if not path.name.startswith("orbitmq"):
            path.unlink()
    pair.leader.open()
    assert pair.leader.tables() == before


def test_a_file_that_was_edited_while_the_broker_stood_counts(pair: TablePair) -> None:
    """The version grew, as where RocketMQ changed it: the difference is recorded."""
    make_topic(pair)
    make_topic(pair, "gone")
    pair.leader.close()
    path = pair.leader.root / "config" / "topics.json"
    saved = json.loads(path.read_text())
    saved["topicConfigTable"]["orders"]["perm"] = 4
    del saved["topicConfigTable"]["gone"]
    saved["topicConfigTable"]["new"] = {**saved["topicConfigTable"]["orders"], "topicName": "new"}
    saved["dataVersion"]["counter"] += 1
    path.write_text(json.dumps(saved))
    pair.leader.open()
    topics = pair.leader.broker.topics
    assert topics.get("gone") is None
    assert topics.get("new") is not None
    assert topics.get("orders").perm == 4  # type: ignore[union-attr]
    assert_equal(pair)


def test_a_file_that_is_older_than_the_log_does_not_count(pair: TablePair) -> None:
    make_topic(pair)
    path = pair.leader.root / "config" / "topics.json"
    old = path.read_text()
    make_topic(pair, "later")
    pair.leader.close()
    path.write_text(old)
    pair.leader.open()
    assert pair.leader.broker.topics.get("later") is not None


def test_tables_from_before_there_were_records_are_recorded_at_the_first_start(pair: TablePair) -> None:
    pair.leader.close()
    config = pair.leader.root / "config"
    topics = json.loads((config / "topics.json").read_text())
    topics["topicConfigTable"]["old"] = {"topicName": "old", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    (config / "topics.json").write_text(json.dumps(topics))
    pair.leader.open()
    pair.leader.turn()
    pair.replicate()
    assert pair.copy.broker.topics.get("old") is not None


def test_the_last_words_are_said_again_before_their_file_goes(pair: TablePair) -> None:
    leader = pair.leader
    make_topic(pair, "first")
    for _ in range(3):
        send(pair, body=bytes(40_000))
    needed = leader.records.lowest_needed()
    boundary = leader.store.log.sequence.segments[1].base
    assert needed is not None
    assert needed < boundary
    assert leader.records.bytes_below(boundary) > 0
    assert leader.records.take_below(boundary, 100) == []
    moved = leader.records.lowest_needed()
    assert moved is not None
    assert moved >= boundary
    before = leader.tables()
    leader.store.remove_paths(leader.store.drop_first_segments(1))
    leader.kill()
    for path in (leader.root / "config").iterdir():
        path.unlink()
    leader.open()
    assert leader.tables() == before


def test_a_start_reads_few_records_however_many_were_written(pair: TablePair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_words, "TABLE_RECORDS_READ_MAX", 20)
    make_topic(pair, "first")
    for number in range(100):
        make_topic(pair, "often", queues=1 + number % 7)
    words = pair.leader.records._words
    assert words.next_offset - words.first_offset() <= 22
    before = pair.leader.tables()
    pair.leader.crash()
    assert pair.leader.tables() == before
    assert_equal(pair)


def test_a_record_that_cannot_be_written_is_written_later(pair: TablePair, monkeypatch: pytest.MonkeyPatch) -> None:
    leader = pair.leader

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "write", full)
        leader.broker.topics.ensure_retry("g", 1)
        leader.turn()
    leader.advance(10 * SECOND)
    pair.replicate()
    assert pair.copy.broker.topics.get("%RETRY%g") is not None


def test_a_record_that_cannot_be_read_is_reported_and_the_others_count(
    pair: TablePair, caplog: pytest.LogCaptureFixture
) -> None:
    for body in (
        b"no json",
        b'{"version": 2, "kind": "changed"}',
        b'{"version": 1, "kind": "changed", "table": "topics", "put": {"t": 5}}',
    ):
        pair.leader.store.append(NewMessage(TABLES_TOPIC, 0, body, b""))
    make_topic(pair)
    assert_equal(pair)
    assert pair.leader.records.reading.unreadable_count == 3
    assert "orders" in pair.copy.tables()["topics"]


def test_a_table_that_is_not_known_here_is_kept_in_the_log(pair: TablePair) -> None:
    body = msgspec.json.encode(Changed(1, "of-tomorrow", {"k": msgspec.Raw(b'{"a":1}')}))
    pair.leader.store.append(NewMessage(TABLES_TOPIC, 0, body, b""))
    pair.leader.turn()
    assert pair.leader.records._recovered["of-tomorrow"].values == {"k": b'{"a":1}'}
    pair.leader.records.take_below(pair.leader.store.log.end, 100)
    pair.leader.turn()
    pair.replicate()
    assert pair.copy.records._recovered["of-tomorrow"].values == {"k": b'{"a":1}'}


def test_a_copy_records_nothing(pair: TablePair) -> None:
    pair.copy.broker.groups.get("of-the-copy")
    pair.copy.advance(10 * SECOND)
    assert pair.copy.store.log.end == 0
    pair.copy.records.copy_follows(True)
    pair.copy.records.attach(pair.copy.store)
    pair.copy.turn()
    assert pair.copy.store.max_offset(TABLES_TOPIC, 0) > 0, "a new leader records what it has"


def test_files_stay_until_what_was_said_again_is_confirmed(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(SETTINGS, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    pair = TablePair(tmp_path, settings)
    make_topic(pair, "first")
    needed, end = pair.leader.records.lowest_needed(), pair.leader.store.log.end
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pair.leader.store._flushing, "start", lambda: None)
        pair.leader.records.take_below(end, 100)
        assert pair.leader.store.log.end > end
        assert pair.leader.records.lowest_needed() == needed
    pair.leader.store.sync()
    moved = pair.leader.records.lowest_needed()
    assert moved is not None
    assert moved >= end
    pair.close()


def test_entries_beyond_one_turn_are_said_again_in_the_next_ones(
    pair: TablePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_records, "TABLE_KEYS_PER_TURN_MAX", 3)
    for number in range(10):
        make_topic(pair, f"t{number}")
    leader, end = pair.leader, pair.leader.store.log.end
    leader.records.take_below(end, 1_000)
    needed = leader.records.lowest_needed()
    assert needed is not None
    assert needed < end
    for _ in range(4):
        leader.advance(20)
    needed = leader.records.lowest_needed()
    assert needed is not None
    assert needed >= end
    assert_equal(pair)


def test_what_was_not_recorded_is_taken_back_by_who_does_not_lead_any_more(pair: TablePair) -> None:
    make_group(pair)
    pair.leader.broker.offsets.commit("g", "orders", 0, 1)
    pair.leader.advance(SECOND)
    pair.leader.broker.offsets.commit("g", "orders", 0, 2)
    pair.leader.broker.offsets.commit("h", "orders", 0, 2)
    pair.leader.turn()
    pair.leader.records.detach()
    offsets = pair.leader.broker.offsets
    assert (offsets.query("g", "orders", 0), offsets.query("h", "orders", 0)) == (1, None)
    pair.leader.records.attach(pair.leader.store)
    assert_equal(pair)


def test_what_was_cut_off_before_it_was_confirmed_does_not_count(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(SETTINGS, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    pair = TablePair(tmp_path, settings)
    make_group(pair, retryMaxTimes=3)
    groups, end = pair.leader.broker.groups, pair.leader.store.log.end
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pair.leader.store._flushing, "start", lambda: None)
        groups.put(msgspec.structs.replace(groups.known("g"), retry_max_times=9))  # type: ignore[type-var]
        groups.get("h")
        pair.leader.turn()
        assert pair.leader.store.log.end > end
        pair.leader.records.take_back(end)
    group = groups.known("g")
    assert group is not None
    assert group.retry_max_times == 3
    assert groups.known("h") is None
    pair.leader.kill()
    pair.copy.close()


def test_what_a_file_says_is_dropped_by_a_copy_once_its_log_has_everything(pair: TablePair) -> None:
    """Nothing of its log was known to be confirmed when it began; its last change as a leader was not, and stands in its file."""
    pair.copy.broker.groups.put(SubscriptionGroupConfig(group_name="unconfirmed"))
    pair.copy.save_tables()
    pair.copy.crash()
    pair.copy.records.detach()
    assert pair.copy.broker.groups.known("unconfirmed") is not None
    make_group(pair)
    assert_equal(pair)
    assert pair.copy.broker.groups.known("unconfirmed") is None


def test_what_a_file_says_stays_while_the_log_has_not_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who founds a group on a store from before ends in the middle of its first words."""
    pair = TablePair(tmp_path)
    broker = pair.leader
    broker.records.copy_follows(False)
    for number in range(9):
        make_group(pair, f"g{number}")
    broker.turn()
    broker.save_tables()
    broker.leads = False
    broker.reopen()
    broker.records.detach()
    monkeypatch.setattr(table_records, "TABLE_KEYS_PER_TURN_MAX", 3)
    broker.records.copy_follows(True)
    broker.records.attach(broker.store)
    broker.turn()
    assert 0 < len(broker.records._words.keys_of("groups")) < 9
    for _ in range(2):  # with the first ones in the log, and again
        broker.save_tables()
        broker.crash()
        broker.records.detach()
        assert all(broker.broker.groups.known(f"g{number}") for number in range(9))
    broker.lead()
    broker.records.copy_follows(True)
    for _ in range(9):
        broker.advance(SECOND)
    assert not broker.identity.is_unsaid
    assert_equal(pair)
    pair.close()


def test_who_waits_for_a_record_of_a_leader_that_cannot_record_yet_is_told_later(pair: TablePair) -> None:
    """It was to let another one lead, which did not come about: it takes changes, and its last records are not confirmed yet."""
    make_group(pair)
    records, groups = pair.leader.records, pair.leader.broker.groups
    for is_recorded in (True, False):
        told: list[BaseException | None] = []
        records.detach()
        groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=7 if is_recorded else 9))
        records.when_recorded(told.append)
        pair.leader.turn()
        assert told == []
        if is_recorded:
            records.attach(pair.leader.store)
            pair.leader.turn()
            assert told == [None]
        else:
            records.detach()
            assert [type(error) for error in told] == [OrbitError]
        group = groups.known("g")
        assert group is not None
        assert group.retry_max_times == 7
    records.attach(pair.leader.store)
    assert_equal(pair)


def test_an_own_record_that_is_confirmed_later_is_the_last_word_where_a_newer_change_was_taken_back(
    tmp_path: Path,
) -> None:
    settings = msgspec.structs.replace(SETTINGS, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    pair = TablePair(tmp_path, settings)
    make_group(pair, retryMaxTimes=3)
    groups, store = pair.leader.broker.groups, pair.leader.store
    known = groups.known("g")
    assert known is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store._flushing, "start", lambda: None)
        groups.put(msgspec.structs.replace(known, retry_max_times=5))
        pair.leader.turn()
        groups.put(msgspec.structs.replace(known, retry_max_times=9))
        store.only_copy("another one leads")
        pair.leader.records.detach()
    store.sync()
    group = groups.known("g")
    assert group is not None
    assert group.retry_max_times == 5
    pair.leader.kill()
    pair.copy.close()


def test_a_copy_that_leads_without_copies_says_that_its_offsets_are_in_a_file(pair: TablePair) -> None:
    send(pair)
    send(pair)
    pair.leader.broker.offsets.commit("g", "orders", 0, 1)
    pair.leader.advance(SECOND)
    pair.replicate()
    copy = pair.copy
    copy.records.attach(copy.store)
    copy.broker.offsets.commit("g", "orders", 0, 2)
    copy.advance(SECOND)
    copy.reopen()
    assert copy.broker.offsets.query("g", "orders", 0) == 2


def test_a_change_that_a_leader_did_not_record_before_it_led_no_more_is_not_told_as_made(pair: TablePair) -> None:
    """What it did not record it takes back."""
    make_topic(pair, "first")
    leader, peer = pair.leader, ListPeer(pair.clock, 40_000)
    fields = {"topic": "orders", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6", "order": "false"}
    assert leader.broker.handle(request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields), peer) is None
    leader.records.detach()
    leader.broker.end_turn()
    assert leader.broker.topics.get("orders") is None
    assert [answer.code for answer in peer.sent] == [ResponseCode.SYSTEM_ERROR]
