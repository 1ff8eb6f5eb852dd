"""A copy that begins with nothing, after retention has removed files of the log: what these alone said is said again before they go."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path

import pytest
from tests.worlds.table_pair import TableBroker, TablePair

from orbitmq.broker.table_records.queue_ends import RecordedQueueEnds
from orbitmq.protocol.names import TABLES_TOPIC
from orbitmq.protocol.properties import Property, encode_properties
from orbitmq.protocol.remoting.bodies import TopicConfig
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.store.message import NewMessage

SECOND = 1_000


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[TablePair]:
    made = TablePair(tmp_path)
    for topic in ("idle", "busy"):
        made.leader.broker.topics.put(TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4), {})
    made.leader.turn()
    yield made
    made.close()


def send(broker: TableBroker, topic: str, count: int = 1, size: int = 100) -> list[int]:
    """The queue offsets of new messages in queue 0."""
    offsets = [broker.store.append(NewMessage(topic, 0, bytes(size), b"")).queue_offset for _ in range(count)]
    broker.turn()
    return offsets


def fill(broker: TableBroker, files: int = 1) -> None:
    """Messages of another topic, until so many files more have begun."""
    wanted = len(broker.store.log.sequence.segments) + files
    while len(broker.store.log.sequence.segments) < wanted:
        send(broker, "busy", 4, 5_000)


def remove_all_but_last(broker: TableBroker) -> None:
    broker.remove_files(len(broker.store.log.sequence.segments) - 1)


def words(broker: TableBroker, table: str = RecordedQueueEnds.record_name) -> set[str]:
    return {key for name, key in broker.records._words._places if name == table}


def test_an_idle_queue_goes_on_at_a_promoted_slave_that_never_had_its_messages(pair: TablePair) -> None:
    send(pair.leader, "idle", 5)
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    assert pair.leader.store.min_offset("idle", 0) == pair.leader.store.max_offset("idle", 0) == 5
    slave = pair.seed_copy()
    assert (slave.store.min_offset("idle", 0), slave.store.max_offset("idle", 0)) == (5, 5)
    slave.lead()
    assert send(slave, "idle") == [5]


def test_what_a_slave_learnt_of_an_idle_queue_outlives_its_own_starts(
    pair: TablePair, caplog: pytest.LogCaptureFixture
) -> None:
    send(pair.leader, "idle", 5)
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    slave = pair.seed_copy()
    slave.broker.offsets.commit("readers", "idle", 0, 5)
    with caplog.at_level(logging.WARNING):
        slave.reopen()
    assert not caplog.messages, "its queues are not made anew"
    assert slave.store.max_offset("idle", 0) == 5
    assert slave.broker.offsets.query("readers", "idle", 0) == 5, "it is not cut to an empty queue"
    slave.crash()
    assert slave.store.max_offset("idle", 0) == 5
    slave.lead()
    assert send(slave, "idle", 2) == [5, 6]
    slave.reopen()
    assert send(slave, "idle") == [7]
    assert slave.store.min_offset("idle", 0) == 5


def test_a_queue_that_gets_a_message_again_is_in_the_table_no_more(pair: TablePair) -> None:
    send(pair.leader, "idle", 5)
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    assert "idle/0" in words(pair.leader)
    send(pair.leader, "idle", 2)
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    slave = pair.seed_copy()
    assert slave.store.max_offset("idle", 0) == 7
    send(pair.leader, "idle")
    pair.leader.advance(SECOND)
    records = pair.leader.records
    records._record_anew([(RecordedQueueEnds.record_name, "idle/0")])
    pair.leader.turn()
    assert "idle/0" not in words(pair.leader)
    pair.replicate()
    assert "idle/0" not in words(slave)
    assert slave.store.max_offset("idle", 0) == 8
    slave.lead()
    assert send(slave, "idle") == [8]


def test_everything_is_said_when_the_first_slave_comes(tmp_path: Path) -> None:
    """A broker alone recorded nothing while its files went."""
    pair = TablePair(tmp_path)
    pair.leader.records.copy_follows(False)
    pair.leader.turn()
    pair.leader.broker.topics.put(TopicConfig(topic_name="idle", read_queue_nums=4, write_queue_nums=4), {})
    send(pair.leader, "idle", 5)
    fill(pair.leader, 2)
    remove_all_but_last(pair.leader)
    assert not words(pair.leader)
    pair.leader.records.copy_follows(True)
    pair.leader.turn()
    slave = pair.seed_copy()
    assert slave.store.max_offset("idle", 0) == 5
    pair.close()


def test_what_went_at_a_slave_is_said_by_it_once_it_leads(pair: TablePair) -> None:
    """Its disk was fuller than that of its master."""
    send(pair.leader, "idle", 5)
    fill(pair.leader)
    pair.replicate()
    first = pair.copy
    first.remove_files()
    assert not words(first)
    first.lead()
    assert words(first) == {"idle/0"}
    pair.leader.close()
    pair.leader = first
    pair.copy = TableBroker(pair.root / "another", pair.clock, leads=False, settings=pair.settings)
    pair.replicate()
    assert pair.copy.store.max_offset("idle", 0) == 5


def test_a_deleted_topic_begins_with_its_first_message_at_a_seeded_slave(pair: TablePair) -> None:
    send(pair.leader, "idle", 5)
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    answer = pair.leader.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "idle"})
    assert answer.code == ResponseCode.SUCCESS
    assert "idle/0" not in words(pair.leader)
    slave = pair.seed_copy()
    assert slave.store.max_offset("idle", 0) == 0
    slave.reopen()
    assert slave.store.max_offset("idle", 0) == 0
    assert send(pair.leader, "idle") == [0]
    pair.replicate()
    assert slave.store.max_offset("idle", 0) == 1


def test_a_topic_is_deleted_after_the_slave_knows_where_its_queue_goes_on(pair: TablePair) -> None:
    send(pair.leader, "idle", 5)
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    slave = pair.seed_copy()
    assert slave.store.max_offset("idle", 0) == 5
    pair.leader.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "idle"})
    pair.replicate()
    assert slave.store.max_offset("idle", 0) == 0


def test_a_topic_is_deleted_while_no_copy_has_the_record_of_where_its_queue_goes_on(pair: TablePair) -> None:
    send(pair.leader, "idle", 5)
    fill(pair.leader)
    store = pair.leader.store
    end = store.log.sequence.segments[0].end
    store.confirmation.hold_for_copies(store.confirm_offset)
    assert not pair.leader.records.say_below(end)
    pair.leader.turn()
    store.delete_topic("idle")
    pair.leader.turn()
    store.confirmation.copies_have(store.log.end)
    pair.leader.turn()
    assert "idle/0" not in words(pair.leader)
    slave = pair.seed_copy()
    assert slave.store.max_offset("idle", 0) == 0
    slave.reopen()
    slave.lead()
    assert send(slave, "idle") == [0]


def test_a_file_stays_until_what_it_alone_says_is_confirmed(pair: TablePair) -> None:
    send(pair.leader, "idle", 5)
    fill(pair.leader)
    store, end = pair.leader.store, pair.leader.store.log.sequence.segments[0].end
    store.confirmation.hold_for_copies(store.confirm_offset)
    assert not pair.leader.records.say_below(end)
    before = store.log.end
    pair.leader.turn()
    after = store.log.end
    assert after > before
    for _ in range(3):
        assert not pair.leader.records.say_below(end)
        pair.leader.advance(SECOND)
    assert store.log.end == after, "it is said once"
    store.confirmation.copies_have(store.log.end)
    pair.leader.turn()
    assert pair.leader.records.say_below(end)


def test_the_ends_of_many_queues_are_said_in_bounded_parts(pair: TablePair) -> None:
    for number in range(1_500):
        pair.leader.store.append(NewMessage(f"topic{number}", 0, b"x", b""))
    pair.leader.turn()
    fill(pair.leader)
    for _ in range(4):
        pair.leader.turn()
    remove_all_but_last(pair.leader)
    slave = pair.seed_copy()
    assert sum(slave.store.max_offset(f"topic{number}", 0) for number in range(1_500)) == 1_500
    assert slave.store.max_offset(TABLES_TOPIC, 0) == pair.leader.store.max_offset(TABLES_TOPIC, 0)


# --- idempotent sends -------------------------------------------------------------------------------------------------


def send_once(
    broker: TableBroker, key: str, *, epoch: int = 1, scope: str = "loader", window_ms: int = 0
) -> tuple[int, str]:
    """Code and place of the answer."""
    run = {Property.ONCE_WINDOW: str(window_ms)} if window_ms else {Property.ONCE_EPOCH: str(epoch)}
    properties = {Property.ONCE_SCOPE: scope, Property.ONCE_KEY: key, Property.UNIQ_KEY: f"ID-{epoch}-{key}", **run}
    fields = {
        "a": "pg", "b": "idle", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0, "j": 0, "k": False, "m": False,
        "i": encode_properties(properties).decode(),
    }  # fmt: skip
    answer = broker.call(RequestCode.SEND_MESSAGE_V2, fields, b"x")
    return answer.code, answer.fields.get("queueOffset", "")


def remembered(broker: TableBroker) -> dict[str, list[tuple[int, list[tuple[int, int]]]]]:
    return {
        name: [(keys.epoch, sorted(keys.items())) for keys in (scope.current, scope.previous) if keys is not None]
        for name, scope in broker.idempotence.memory._lasting.items()
    }


def test_a_send_is_known_to_a_slave_that_never_had_its_record(pair: TablePair) -> None:
    first = send_once(pair.leader, "a")
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    slave = pair.seed_copy()
    assert remembered(slave) == remembered(pair.leader) != {}
    slave.lead()
    assert send_once(slave, "a") == first == (0, "0")
    assert send_once(slave, "b") == (0, "1")


def test_a_key_with_a_window_is_known_to_a_slave_that_never_had_its_record(pair: TablePair) -> None:
    first = send_once(pair.leader, "a", scope="^idle", window_ms=86_400_000)
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    slave = pair.seed_copy()

    def known(broker: TableBroker) -> list[tuple[int, list[tuple[int, int]]]]:
        return [(keys.epoch, sorted(keys.items())) for keys in broker.idempotence.memory.windows]

    assert known(slave) == known(pair.leader) != []
    slave.crash()
    assert known(slave) == known(pair.leader)
    slave.lead()
    assert send_once(slave, "a", scope="^idle", window_ms=86_400_000) == first == (0, "0")
    assert send_once(slave, "b", scope="^idle", window_ms=86_400_000) == (0, "1")


def test_both_epochs_of_a_scope_are_known_in_any_order(pair: TablePair) -> None:
    send_once(pair.leader, "a", epoch=1)
    send_once(pair.leader, "a", epoch=3)
    fill(pair.leader)
    pair.leader.remove_files()
    send_once(pair.leader, "b", epoch=3)
    slave = pair.seed_copy()
    assert remembered(slave) == remembered(pair.leader)
    slave.crash()
    assert remembered(slave) == remembered(pair.leader)
    slave.reopen()
    assert remembered(slave) == remembered(pair.leader)
    slave.lead()
    assert send_once(slave, "a", epoch=2)[0] == ResponseCode.STALE_EPOCH
    assert send_once(slave, "a", epoch=1) == (0, "0")


def test_an_earlier_epoch_that_comes_later_is_the_one_before(pair: TablePair) -> None:
    """The log that is left has sends of the newer one; keys of the older come with the table, behind them."""
    send_once(pair.leader, "a", epoch=1)
    fill(pair.leader)
    send_once(pair.leader, "b", epoch=2)
    fill(pair.leader)
    pair.leader.remove_files()
    slave = pair.seed_copy()
    assert remembered(slave) == remembered(pair.leader)
    slave.reopen()
    assert remembered(slave) == remembered(pair.leader)


def test_many_keys_are_said_in_records_of_a_bounded_size(pair: TablePair) -> None:
    for number in range(1_200):
        send_once(pair.leader, f"key{number}")
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    assert len(words(pair.leader, "sentKeys")) > 1
    slave = pair.seed_copy()
    assert remembered(slave) == remembered(pair.leader)
    fill(pair.leader, 3)
    remove_all_but_last(pair.leader)
    slave = pair.seed_copy()
    assert remembered(slave) == remembered(pair.leader), "they are said again before their own file goes"


def test_keys_of_an_epoch_that_is_over_are_said_no_more(pair: TablePair) -> None:
    send_once(pair.leader, "a", epoch=1)
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    send_once(pair.leader, "b", epoch=2)
    send_once(pair.leader, "c", epoch=3)
    assert words(pair.leader, "sentKeys")
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    assert not any(key.startswith("1:") for key in words(pair.leader, "sentKeys"))
    slave = pair.seed_copy()
    assert remembered(slave) == remembered(pair.leader)


def test_an_epoch_that_ends_while_its_keys_are_on_their_way_holds_no_file_back(pair: TablePair) -> None:
    send_once(pair.leader, "a", epoch=1)
    fill(pair.leader)
    store = pair.leader.store
    end = store.log.sequence.segments[0].end
    store.confirmation.hold_for_copies(store.confirm_offset)
    assert not pair.leader.records.say_below(end)
    send_once_unanswered(pair.leader, epoch=2)
    send_once_unanswered(pair.leader, epoch=3)
    pair.leader.advance(2 * SECOND)
    store.confirmation.copies_have(store.log.end)
    pair.leader.turn()
    for _ in range(3):
        pair.leader.records.say_below(end)
        pair.leader.advance(2 * SECOND)
        store.confirmation.copies_have(store.log.end)
        pair.leader.turn()
    assert pair.leader.records.say_below(end)


def send_once_unanswered(broker: TableBroker, *, epoch: int) -> None:
    values = {Property.ONCE_SCOPE: "loader", Property.ONCE_EPOCH: str(epoch), Property.ONCE_KEY: "z"}
    broker.store.append(NewMessage("idle", 0, b"x", encode_properties(values)))
    broker.turn()


def test_transient_scopes_are_not_said(pair: TablePair) -> None:
    send_once(pair.leader, "a", scope="~producer")
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    assert not words(pair.leader, "sentKeys")


def test_keys_are_said_when_the_first_slave_comes_and_once_more_after_the_last_has_gone(tmp_path: Path) -> None:
    pair = TablePair(tmp_path)
    pair.leader.broker.topics.put(TopicConfig(topic_name="idle", read_queue_nums=4, write_queue_nums=4), {})
    pair.leader.records.copy_follows(False)
    send_once(pair.leader, "a")
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    for _ in range(2):
        pair.leader.records.copy_follows(True)
        for _ in range(3):
            pair.leader.advance(2 * SECOND)
        assert words(pair.leader, "sentKeys") >= {"whole"}, "though retention does not ask"
        assert len(words(pair.leader, "sentKeys")) == 2
        slave = pair.seed_copy()
        assert remembered(slave) == remembered(pair.leader)
        pair.leader.records.copy_follows(False)
        pair.leader.turn()
        assert not words(pair.leader, "sentKeys")
    pair.close()


def test_a_start_says_nothing_once_more(pair: TablePair) -> None:
    send_once(pair.leader, "a")
    send(pair.leader, "idle", 3)
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    pair.leader.advance(2 * SECOND)
    before = pair.leader.store.log.end
    pair.leader.reopen()
    pair.leader.advance(2 * SECOND)
    assert pair.leader.store.log.end == before


def test_a_repeat_to_a_topic_that_was_deleted_is_a_first_send_at_a_seeded_slave(pair: TablePair) -> None:
    send_once(pair.leader, "a")
    fill(pair.leader)
    pair.leader.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "idle"})
    pair.leader.broker.topics.put(TopicConfig(topic_name="idle", read_queue_nums=4, write_queue_nums=4), {})
    fill(pair.leader)
    remove_all_but_last(pair.leader)
    slave = pair.seed_copy()
    assert slave.idempotence.memory.ended.position("idle") == pair.leader.idempotence.memory.ended.position("idle") > 0
    slave.reopen()
    slave.lead()
    first = send_once(slave, "a")
    assert first == (0, "0")
    assert slave.store.max_offset("idle", 0) == 1
    assert send_once(slave, "a") == first


def test_a_journal_that_cannot_be_written_once_holds_files_back_until_it_can(
    pair: TablePair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send_once(pair.leader, "a")
    fill(pair.leader)
    store, records = pair.leader.store, pair.leader.records
    end = store.log.sequence.segments[0].end
    with monkeypatch.context() as patch:
        patch.setattr(pair.leader.idempotence, "write", refuse)
        for _ in range(3):
            assert not records.say_below(end)
    assert len([message for message in caplog.messages if "trying again" in message]) == 1, "it is said once"
    remove_all_but_last(pair.leader)
    assert remembered(pair.seed_copy()) == remembered(pair.leader)


def refuse() -> None:
    raise OSError(ENOSPC, "No space left on device")


@pytest.mark.parametrize("how", ["crash", "promotion"])
def test_keys_of_which_a_part_was_said_when_the_leader_ended_are_said_again_as_a_whole(
    pair: TablePair, how: str
) -> None:
    for number in range(3_000):
        send_once(pair.leader, f"key{number}")
    fill(pair.leader)
    end = pair.leader.store.log.sequence.segments[-1].base
    assert not pair.leader.records.say_below(end)
    pair.leader.turn()
    said = words(pair.leader, "sentKeys")
    assert said
    assert "whole" not in said, "a part of them"
    if how == "crash":
        pair.leader.crash()
    else:
        pair.replicate()
        pair.leader.close()
        pair.leader = pair.copy
        pair.leader.lead()
        pair.copy = TableBroker(pair.root / "third", pair.clock, leads=False, settings=pair.settings)
    assert not pair.leader.records.say_below(end)
    remove_all_but_last(pair.leader)
    assert "whole" in words(pair.leader, "sentKeys")
    assert remembered(pair.seed_copy()) == remembered(pair.leader)
