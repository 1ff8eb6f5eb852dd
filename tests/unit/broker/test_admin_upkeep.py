"""Cleaning up on demand: expired log and queue files, topics nobody knows; and the units of a queue."""

from __future__ import annotations

import pytest

from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.remoting.bodies import ConsumeQueueBody, DelayOffsetTable, HaRuntimeInfo
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.store.settings import StoreSettings

TINY = StoreSettings(
    mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=200, max_hash_slot_num=100, max_index_num=400
)


def test_expired_log_files_are_asked_to_be_removed(rig):
    asked = []
    rig.broker.rooms.administration.upkeep.request_retention = lambda: asked.append(True)
    assert rig.call(RequestCode.DELETE_EXPIRED_COMMITLOG).code == ResponseCode.SUCCESS
    assert asked == [True]


def test_a_broker_that_removes_nothing_says_so(rig):
    answer = rig.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "removes no commit log files" in (answer.remark or "")


def test_queue_files_that_speak_of_removed_messages_go_and_the_newest_stays(make_rig):
    rig = make_rig(store=TINY)
    for _ in range(300):
        rig.sent_ok("T", b"x" * 400)
    folder = rig.root / "consumequeue" / "T" / "0"
    rig.store.queues.write()
    before = sorted(path.name for path in folder.iterdir())
    rig.store.remove_paths(rig.store.drop_first_segments(1))
    rig.store.remove_paths([])
    assert rig.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE).code == ResponseCode.SUCCESS
    after = sorted(path.name for path in folder.iterdir())
    assert after[-1] == before[-1]
    assert len(after) < len(before)
    assert rig.store.max_offset("T", 0) == 300
    assert rig.store.min_offset("T", 0) > 0


def test_queues_of_topics_that_nobody_knows_are_forgotten_with_their_offsets(rig):
    rig.sent_ok("Kept")
    rig.sent_ok("Lost")
    rig.broker.offsets.commit("g", "Lost", 0, 1)
    rig.broker.topics.delete("Lost")
    system = [queue.topic for queue in rig.store.queues if rig.broker.topics.is_system(queue.topic)]
    assert rig.call(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
    topics = {queue.topic for queue in rig.store.queues}
    assert "Lost" not in topics
    assert {"Kept", *system} <= topics
    assert rig.broker.offsets.query("g", "Lost", 0) is None


def test_topics_that_a_lost_table_hides_are_named_at_the_start(rig, caplog):
    """An emptied file counts as none, as with RocketMQ: the messages are there, and nobody can read them."""
    for number in range(22):
        rig.sent_ok(f"T{number:02}")
    rig.close()
    for path in (rig.root / "config").glob("topics.json*"):
        path.write_bytes(b"")
    rig.open()
    (said,) = [record.getMessage() for record in caplog.records if "no topic table" in record.message]
    assert said.startswith("22 topics have messages and are in no topic table, nobody can read them: T00, T01,")
    assert "T19, ..." in said
    rig.sent_ok("T00")
    caplog.clear()
    assert rig.call(RequestCode.CLEAN_UNUSED_TOPIC).code == ResponseCode.SUCCESS
    rig.reopen()
    assert not any("no topic table" in record.message for record in caplog.records if record.levelname == "WARNING")


def test_delay_levels_are_told_with_their_version(rig):
    rig.broker.rooms.administration.broker.level_offsets = lambda: {3: 7, 1: 2}
    body = DelayOffsetTable.decode(rig.call(RequestCode.GET_ALL_DELAY_OFFSET).body)
    assert body.offset_table == {1: 2, 3: 7}
    assert body.data_version is not None


def test_a_broker_without_slaves(rig):
    rig.sent_ok("T")
    body = HaRuntimeInfo.decode(rig.call(RequestCode.GET_BROKER_HA_STATUS).body)
    assert body.master
    assert (body.in_sync_slave_nums, body.ha_connection_info) == (0, [])
    assert body.master_commit_log_max_offset == rig.store.log.written_end


class TestUnitsOfAQueue:
    @pytest.fixture
    def ask(self, rig):
        for tag in ("a", "b", "a", "c"):
            rig.sent_ok("T", b"x", {"TAGS": tag})

        def ask(**fields: object) -> ConsumeQueueBody:
            answer = rig.call(
                RequestCode.QUERY_CONSUME_QUEUE, {"topic": "T", "queueId": 0, "index": 0, "count": 9, **fields}
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            return ConsumeQueueBody.decode(answer.body)

        return ask

    def test_place_size_and_tag_of_each(self, rig, ask):
        body = ask()
        records = rig.records("T")
        assert [unit.physic_offset for unit in body.queue_data] == [record.physical_offset for record in records]
        assert [unit.tags_code for unit in body.queue_data] == [tags_code(tag) for tag in "abac"]
        assert (body.min_queue_index, body.max_queue_index, body.subscription_data) == (0, 4, None)

    def test_a_part_of_them(self, ask):
        assert len(ask(index=1, count=2).queue_data) == 2
        assert ask(index=9).queue_data == []
        assert ask(count=-1).queue_data == []
        assert len(ask(index=-5).queue_data) == 4

    def test_what_a_group_would_take(self, rig, ask):
        rig.heartbeat(rig.peer(), "c", "g", ["T"], sub_string="a || c")
        body = ask(consumerGroup="g")
        assert [unit.eval for unit in body.queue_data] == [True, False, True, True]
        assert body.subscription_data is not None
        assert body.subscription_data.sub_string == "a || c"

    def test_a_group_that_is_not_online_takes_nothing(self, ask):
        assert not any(unit.eval for unit in ask(consumerGroup="nobody").queue_data)

    def test_a_queue_that_is_not_there(self, rig):
        answer = rig.call(RequestCode.QUERY_CONSUME_QUEUE, {"topic": "T", "queueId": 7, "index": 0, "count": 1})
        assert answer.code == ResponseCode.SYSTEM_ERROR
