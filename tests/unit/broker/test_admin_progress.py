"""How far groups have come: per group, for all groups, in time; comparing and copying offsets."""

from __future__ import annotations

import pytest

from orbitmq.broker.administration import progress as admin_progress
from orbitmq.broker.administration.progress import AHEAD
from orbitmq.protocol.remoting.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpans,
    CorrectionOffsets,
    MessageQueue,
    TopicConfig,
)
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode


def put_topic(rig, topic: str, queues: int = 2, *, order: bool = False) -> None:
    config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6, order=order)
    rig.broker.topics.put(config, {})


def commit(rig, group: str, topic: str, offset: int, queue_id: int = 0) -> None:
    rig.broker.offsets.commit(group, topic, queue_id, offset)


def queue(topic: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


class TestOfOneGroup:
    def test_rate_and_rows_of_every_readable_queue(self, rig):
        put_topic(rig, "T")
        for _ in range(6):
            rig.sent_ok("T")
        rig.pull("T", group="g")
        commit(rig, "g", "T", 4)
        answer = rig.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
        stats = ConsumeStats.decode(answer.body)
        one = stats.offset_table[queue("T")]
        assert (one.broker_offset, one.consumer_offset, one.pull_offset) == (6, 4, 6)
        assert one.last_timestamp == rig.clock.now_ms()
        assert stats.offset_table[queue("T", 1)].broker_offset == 0
        assert stats.consume_tps > 0
        rig.advance(120_000)
        answer = rig.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g"})
        assert ConsumeStats.decode(answer.body).consume_tps == 0


class TestOfAllGroups:
    def ask(self, rig, *, ordered: bool = False) -> ConsumeStatsList:
        answer = rig.call(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": ordered})
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return ConsumeStatsList.decode(answer.body)

    @staticmethod
    def rows(body: ConsumeStatsList) -> set[tuple[str, str]]:
        return {
            (group, mq.topic)
            for entry in body.consume_stats_list
            for group, stats in entry.items()
            for one in stats
            for mq in one.offset_table
        }

    def test_every_group_with_offsets_and_the_sum_of_what_lags(self, rig):
        put_topic(rig, "T", 1)
        put_topic(rig, "U", 1)
        for _ in range(5):
            rig.sent_ok("T")
        commit(rig, "g", "T", 2)
        commit(rig, "h", "U", 0)
        body = self.ask(rig)
        assert self.rows(body) == {("g", "T"), ("h", "U")}
        assert (body.total_diff, body.total_inflight_diff) == (3, 0)
        assert body.broker_addr == "10.0.0.1:10911"

    def test_only_ordered_topics_on_demand(self, rig):
        put_topic(rig, "T", order=True)
        put_topic(rig, "U")
        for topic in ("T", "U"):
            commit(rig, "g", topic, 0)
        assert self.rows(self.ask(rig, ordered=True)) == {("g", "T")}

    def test_what_an_online_group_does_not_subscribe_to_is_left_out(self, rig):
        for topic in ("T", "U"):
            put_topic(rig, topic)
            commit(rig, "g", topic, 0)
        rig.heartbeat(rig.peer(), "c", "g", ["T"])
        assert self.rows(self.ask(rig)) == {("g", "T")}

    def test_deleted_topics_do_not_appear(self, rig):
        commit(rig, "g", "Gone", 3)
        assert self.ask(rig).consume_stats_list == []

    def test_too_much_for_one_answer_is_refused(self, rig, monkeypatch):
        monkeypatch.setattr(admin_progress, "CONSUME_STATS_QUEUES_MAX", 3)
        put_topic(rig, "T", 4)
        commit(rig, "g", "T", 0)
        answer = rig.call(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": False})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "one group at a time" in (answer.remark or "")


class TestInTime:
    def spans(self, rig):
        answer = rig.call(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "g"})
        return ConsumeTimeSpans.decode(answer.body).consume_time_span_set

    def test_first_last_consumed_and_how_long_the_next_waits(self, rig):
        put_topic(rig, "T", 2)
        start = rig.clock.now_ms()
        for _ in range(4):
            rig.sent_ok("T")
            rig.advance(1_000)
        commit(rig, "g", "T", 2)
        span, empty = self.spans(rig)
        assert span.message_queue == queue("T")
        assert (span.min_time_stamp, span.max_time_stamp) == (start, start + 3_000)
        assert span.consume_time_stamp == start + 1_000
        assert span.delay_time == 2_000  # the third message waits since start + 2,000
        assert span.min_time_stamp_str.endswith(":000")
        assert (empty.min_time_stamp, empty.delay_time, empty.min_time_stamp_str) == (-1, 0, None)

    def test_a_group_that_has_everything_waits_for_nothing(self, rig):
        put_topic(rig, "T", 1)
        rig.sent_ok("T")
        commit(rig, "g", "T", 1)
        assert self.spans(rig)[0].delay_time == 0

    def test_an_unknown_topic(self, make_rig):
        rig = make_rig(auto_create_topic_enable=False)
        answer = rig.call(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "g"})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


class TestCorrection:
    def ask(self, rig, compared: str, left_out: str = "") -> dict[int, int]:
        fields = {"topic": "T", "compareGroup": compared, "filterGroups": left_out}
        return CorrectionOffsets.decode(rig.call(RequestCode.QUERY_CORRECTION_OFFSET, fields).body).correction_offsets

    @pytest.fixture(autouse=True)
    def offsets(self, rig):
        for group, offset in (("a", 5), ("b", 3), ("c", 1)):
            commit(rig, group, "T", offset)

    def test_the_smallest_of_all_groups(self, rig):
        assert self.ask(rig, "a") == {0: 1}

    def test_some_groups_can_be_left_out_and_keep_their_offsets(self, rig):
        assert self.ask(rig, "a", "c") == {0: 3}
        assert rig.broker.offsets.query("c", "T", 0) == 1

    def test_a_group_behind_all_others_is_told_so(self, rig):
        assert self.ask(rig, "c", "c") == {0: AHEAD}

    def test_nothing_is_known_of_another_topic(self, rig):
        fields = {"topic": "Other", "compareGroup": "a", "filterGroups": ""}
        body = rig.call(RequestCode.QUERY_CORRECTION_OFFSET, fields).body
        assert CorrectionOffsets.decode(body).correction_offsets == {}
