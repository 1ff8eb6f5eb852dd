"""Offsets: stored, asked for, reset, kept over a restart; and where queues begin and end."""

from __future__ import annotations

import json

import msgspec
import pytest

from orbitmq.broker import offsets
from orbitmq.protocol.remoting.bodies import ConsumerOffsetTable, ResetOffsetBody, TopicConfig
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

NAMES = {"consumerGroup": "g", "topic": "T", "queueId": 0}


@pytest.fixture
def used(rig):
    """A rig with topic T, and group g known."""
    rig.sent_ok("T", queue_id=1)
    rig.heartbeat(rig.peer(), "c", "g", ["T"])
    return rig


def update(rig, offset, **more):
    return rig.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**NAMES, "commitOffset": offset, **more})


def query(rig, **more):
    answer = rig.call(RequestCode.QUERY_CONSUMER_OFFSET, {**NAMES, **more})
    return int(answer.fields["offset"]) if answer.code == 0 else ResponseCode(answer.code)


def test_what_was_stored_is_answered(used):
    assert update(used, 7).code == ResponseCode.SUCCESS
    assert query(used) == 7
    update(used, 3)
    assert query(used) == 3


def test_negative_offset_reads_back_as_none(used):
    update(used, -1)
    assert query(used, setZeroIfNotFound=False) is ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumerGroup": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": ""}, ResponseCode.INVALID_PARAMETER),
        ({"commitOffset": ""}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_refused_updates(used, fields, code):
    assert update(used, 1, **fields).code == code
    assert used.broker.groups.known("unknown") is None


@pytest.mark.parametrize("queue_id", [-1, 4, 2**31 - 1])
def test_the_offset_of_a_queue_that_does_not_exist_is_refused(used, queue_id):
    answer = update(used, 1, queueId=queue_id)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == f"queue {queue_id} of topic 'T' does not exist: it has 4 queues"
    assert used.broker.offsets.topics_of("g") == []


def test_the_offset_of_a_queue_that_its_topic_lost_is_kept(used):
    used.sent_ok("T", queue_id=3)
    used.call(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {"topic": "T", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"},
    )
    assert update(used, 1, queueId=3).code == ResponseCode.SUCCESS


class TestFirstOffset:
    def test_empty_queue_begins_at_0(self, used):
        assert query(used) == 0

    def test_young_queue_begins_at_0(self, used):
        for _ in range(5):
            used.sent_ok("T")
        assert query(used) == 0

    def test_unless_the_caller_does_not_want_it(self, used):
        assert query(used, setZeroIfNotFound=False) is ResponseCode.QUERY_NOT_FOUND

    def test_old_queue_does_not(self, used):
        used.sent_ok("T")
        core = used.broker.core
        core.facilities = msgspec.structs.replace(core.facilities, memory_bytes=0)
        assert query(used) is ResponseCode.QUERY_NOT_FOUND


class TestSaving:
    def test_after_five_seconds_and_only_when_something_changed(self, used):
        update(used, 7)
        file = used.root / "config" / "consumerOffset.json"
        used.advance(4_999)
        assert not file.exists()
        used.advance(1)
        assert json.loads(file.read_bytes())["offsetTable"] == {"T@g": {"0": 7}}
        used.advance(60_000)
        assert used.broker.deadlines.wakeups["consumer offsets"] == 1

    def test_at_the_stop(self, used):
        for _ in range(7):
            used.sent_ok("T")
        update(used, 7)
        used.reopen()
        assert query(used) == 7

    def test_files_of_rocketmq_are_read(self, rig):
        file = rig.root / "config" / "consumerOffset.json"
        rig.close()
        file.parent.mkdir(exist_ok=True)
        file.write_text('{"dataVersion":{"counter":1},"offsetTable":{"T@g":{0:5,1:7\n\t\t}}}')
        rig.open()
        assert (rig.broker.offsets.query("g", "T", 0), rig.broker.offsets.query("g", "T", 1)) == (5, 7)

    def test_a_failed_save_is_tried_again(self, used):
        calls = []

        def fail(document):
            calls.append(document)
            raise OSError("disk on fire")

        used.broker.offsets._snapshots._file = type(
            "Failing", (), {"save": staticmethod(fail), "load": staticmethod(lambda: None)}
        )()
        update(used, 7)
        used.advance(5_000)
        assert used.broker.offsets.dirty
        used.advance(5_000)
        assert len(calls) == 2
        used.broker.offsets.dirty = False

    def test_version_moves_with_every_500_commits(self, used):
        before = used.broker.offsets.version.counter
        for offset in range(1, 1_001):
            used.broker.offsets.commit("g", "T", 0, offset)
        assert used.broker.offsets.version.counter == before + 2


class TestBeyondTheRecoveredLog:
    """What a crash took from the log, the saved offsets must not speak of: the next messages get the same numbers."""

    def test_is_cut_to_the_end_of_the_queue_and_said(self, used, caplog):
        for _ in range(3):
            used.sent_ok("T")
        update(used, 10)
        update(used, 5, queueId=2)
        used.reopen()
        assert [record.getMessage() for record in caplog.records if "cut to" in record.message] == [
            "the offset of group g on queue 0 of T was saved as 10, beyond the queue's end: cut to 3",
            "the offset of group g on queue 2 of T was saved as 5, beyond the queue's end: cut to 0",
        ]
        assert (query(used), query(used, queueId=2)) == (3, 0)
        used.reopen()
        assert query(used) == 3, "the cut is saved"

    def test_what_fits_and_queues_that_nobody_knows_stay(self, used):
        used.sent_ok("T")
        update(used, 1)
        used.broker.offsets.commit("g", "T", 9, 4)
        used.broker.offsets.commit("g", "Unknown", 0, 4)
        used.reopen()
        assert (query(used), query(used, queueId=9), query(used, topic="Unknown")) == (1, 4, 4)

    def test_one_of_a_topic_that_is_gone_is_cut_when_the_topic_is_made_again(self, used):
        used.broker.offsets.commit("g", "Again", 0, 4)
        used.reopen()
        used.sent_ok("Again")
        assert query(used, topic="Again") == 0

    def test_one_of_a_queue_that_is_gone_is_cut_when_the_topic_gets_it_again(self, used):
        for topic in ("T", "Again"):
            used.broker.offsets.commit("g", topic, 5, 4)
        used.reopen()
        used.sent_ok("Again")
        for topic in ("T", "Again"):
            assert query(used, topic=topic, queueId=5) == 4
            used.broker.topics.put(TopicConfig(topic_name=topic, read_queue_nums=6, write_queue_nums=6), {})
            assert query(used, topic=topic, queueId=5) == 0
        assert used.broker.core._orphans == set()

    def test_many_are_named_up_to_a_bound_and_counted(self, used, caplog, monkeypatch):
        monkeypatch.setattr(offsets, "CUT_OFFSETS_LOGGED_MAX", 3)
        for group in range(5):
            used.broker.offsets.commit(f"g{group}", "T", 0, 9)
        used.reopen()
        said = [record.getMessage() for record in caplog.records if "beyond" in record.message]
        assert len(said) == 4
        assert said[-1].startswith("5 saved offsets lay beyond")

    def test_deleting_a_topic_saves_that_its_offsets_are_gone_before_its_queues_go(self, used, monkeypatch):
        for _ in range(3):
            used.sent_ok("T")
        update(used, 3)
        used.advance(5_000)
        file = used.root / "config" / "consumerOffset.json"
        assert "T@g" in json.loads(file.read_bytes())["offsetTable"]
        seen = []
        delete = used.store.delete_topic
        monkeypatch.setattr(
            used.store,
            "delete_topic",
            lambda topic: (seen.append(json.loads(file.read_bytes())["offsetTable"]), delete(topic)),
        )
        used.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert seen == [{}]

    def test_an_older_snapshot_never_replaces_a_newer_one(self, used):
        update(used, 1)
        older = used.broker.offsets.snapshot()
        update(used, 2)
        used.broker.offsets.save()
        older()
        assert json.loads((used.root / "config" / "consumerOffset.json").read_bytes())["offsetTable"] == {
            "T@g": {"0": 2}
        }

    def test_a_snapshot_holds_what_was_when_it_was_taken(self, used):
        """Queues are copied when they change, not when the snapshot is taken."""
        offsets = used.broker.offsets

        def saved():
            return json.loads((used.root / "config" / "consumerOffset.json").read_bytes())["offsetTable"]

        for topic in ("Changed", "Dropped", "Kept"):
            offsets.commit("g", topic, 0, 1)
        before = offsets.snapshot()
        offsets.commit("g", "Changed", 0, 5)
        offsets.commit("g", "Changed", 1, 6)
        offsets.drop_topic("Dropped")
        offsets.commit("g", "Dropped", 2, 7)  # the topic was made again
        offsets.commit("g", "New", 0, 8)
        before()
        assert saved() == {f"{topic}@g": {"0": 1} for topic in ("Changed", "Dropped", "Kept")}
        offsets.snapshot()()
        assert saved() == {
            "Changed@g": {"0": 5, "1": 6}, "Dropped@g": {"2": 7}, "Kept@g": {"0": 1}, "New@g": {"0": 8}
        }  # fmt: skip


class TestReset:
    def reset(self, rig, **fields):
        base = {"group": "g", "topic": "T", "timestamp": 0, "isForce": True, "queueId": -1, "offset": -1}
        return rig.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**base, **fields})

    def targets(self, answer):
        return {queue.queue_id: offset for queue, offset in ResetOffsetBody.decode(answer.body).offset_table.items()}

    def test_to_the_end(self, used):
        for _ in range(3):
            used.sent_ok("T")
        assert self.targets(self.reset(used, timestamp=-1)) == {0: 3, 1: 1, 2: 0, 3: 0}

    def test_by_time(self, used):
        used.sent_ok("T")
        used.clock.advance(1_000)
        used.sent_ok("T")
        assert self.targets(self.reset(used, timestamp=used.clock.now_ms(), queueId=0)) == {0: 1}

    def test_next_pull_gets_it_and_commits_are_ignored_until_then(self, used):
        for _ in range(5):
            used.sent_ok("T")
        update(used, 5)
        assert self.targets(self.reset(used, queueId=0, offset=2)) == {0: 2}
        ignored = update(used, 5)
        assert ignored.code == ResponseCode.SUCCESS
        assert ignored.remark
        assert query(used) == 2
        answer = used.pull("T", 5, sysFlag=4 | 1, commitOffset=5)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert answer.fields["nextBeginOffset"] == "2"
        assert query(used) == 2
        update(used, 4)
        assert query(used) == 4

    def test_it_is_handed_to_what_is_held_at_once(self, used):
        used.sent_ok("T")
        former, owner, other = used.peer(), used.peer(), used.peer()
        used.heartbeat(used.peer(), "c2", "other", ["T"])
        for peer, group in ((former, "g"), (owner, "g"), (other, "other")):
            assert used.pull("T", 1, group=group, sysFlag=4 | 2, peer=peer) is None
        self.reset(used, queueId=0, offset=0)
        for peer in (former, owner):
            (answer,) = peer.take()
            assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
            assert answer.fields["nextBeginOffset"] == "0"
        assert other.take() == []
        assert used.pull("T", 0).remark == "FOUND", "the reset is done with"

    def test_one_that_the_full_table_refuses_answers_what_is_held_too(self, used, monkeypatch):
        used.sent_ok("T")
        peer = used.peer()
        assert used.pull("T", 1, sysFlag=4 | 2, peer=peer) is None
        monkeypatch.setattr(offsets, "OFFSET_QUEUES_MAX", 0)
        self.reset(used, queueId=0, offset=0)
        assert [answer.code for answer in peer.take()] == [ResponseCode.PULL_NOT_FOUND]

    def test_refused(self, used):
        assert self.reset(used, topic="X").code == ResponseCode.TOPIC_NOT_EXIST
        assert self.reset(used, group="X").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert self.reset(used, queueId=0, offset=9).code == ResponseCode.SYSTEM_ERROR
        assert self.reset(used, queueId=99).code == ResponseCode.INVALID_PARAMETER


class TestQueues:
    def ask(self, rig, code, field="offset", **fields):
        answer = rig.call(code, {"topic": "T", "queueId": 0, **fields})
        assert answer.code == ResponseCode.SUCCESS
        return int(answer.fields[field])

    def test_ends(self, used):
        for _ in range(3):
            used.sent_ok("T")
        assert self.ask(used, RequestCode.GET_MIN_OFFSET) == 0
        assert self.ask(used, RequestCode.GET_MAX_OFFSET) == 3
        assert self.ask(used, RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp") == used.clock.now_ms()

    def test_unknown_queue_is_no_error(self, rig):
        assert self.ask(rig, RequestCode.GET_MIN_OFFSET) == 0
        assert self.ask(rig, RequestCode.GET_MAX_OFFSET) == 0
        assert self.ask(rig, RequestCode.GET_EARLIEST_MSG_STORETIME, "timestamp") == -1
        assert self.ask(rig, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=5) == 0

    def test_search(self, used):
        start = used.clock.now_ms()
        for _ in range(3):
            used.sent_ok("T")
            used.clock.advance(10)
        assert self.ask(used, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=start + 5) == 1
        assert self.ask(used, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=start + 5, boundaryType="UPPER") == 0
        assert self.ask(used, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=start + 500) == 3


def test_all_offsets_are_listed(used):
    update(used, 7)
    answer = used.call(RequestCode.GET_ALL_CONSUMER_OFFSET)
    table = ConsumerOffsetTable.decode(answer.body)
    assert table.offset_table == {"T@g": {0: 7}}
    assert table.group_topic_map == {"g": ["T"]}


def test_deleted_topic_and_group_take_their_offsets_along(used):
    update(used, 7)
    used.sent_ok("U")
    update(used, 1, topic="U")
    used.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert used.broker.offsets.topics_of("g") == ["U"]
    used.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": False})
    assert used.broker.offsets.topics_of("g") == ["U"]
    used.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g", "cleanOffset": True})
    assert used.broker.offsets.topics_of("g") == []
