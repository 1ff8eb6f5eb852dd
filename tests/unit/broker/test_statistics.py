"""What the broker counts, and how tools see it: rates, days, latency, counters of topics and groups."""

from __future__ import annotations

from datetime import datetime

import pytest

from orbitmq.broker.counting.statistics import LATENCY_SAMPLE, Mornings, Statistics
from orbitmq.protocol.remoting.bodies import BrokerStatsData, KVTable
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode

S = 1_000_000_000
NOON_MS = int(datetime(2024, 5, 6, 12).timestamp() * 1000)
DAY_MS = 86_400_000


class TestDays:
    @pytest.fixture
    def statistics(self) -> Statistics:
        return Statistics(NOON_MS, 0)

    def put(self, statistics: Statistics, count: int, now_ns: int, now_ms: int) -> None:
        """One turn in which `count` messages were put."""
        statistics.stored("T", count, count)
        statistics.end_turn(now_ns, lambda: now_ms)

    def test_the_first_day_began_with_nothing(self, statistics):
        self.put(statistics, 5, S, NOON_MS)
        assert statistics.mornings(NOON_MS) == Mornings(0, 0, 0, 0)

    def test_a_day_begins_with_what_was_put_before_midnight(self, statistics):
        self.put(statistics, 5, S, NOON_MS)
        self.put(statistics, 3, 100 * S, NOON_MS + DAY_MS)
        assert statistics.mornings(NOON_MS + DAY_MS) == Mornings(0, 5, 0, 0)
        self.put(statistics, 2, 200 * S, NOON_MS + 2 * DAY_MS)
        assert statistics.mornings(NOON_MS + 2 * DAY_MS) == Mornings(5, 8, 0, 0)

    def test_a_broker_that_slept_over_several_midnights(self, statistics):
        self.put(statistics, 5, S, NOON_MS)
        assert statistics.mornings(NOON_MS + 5 * DAY_MS) == Mornings(5, 5, 0, 0)

    def test_a_clock_that_is_set_back_does_not_repeat_a_day(self, statistics):
        self.put(statistics, 5, S, NOON_MS)
        statistics.mornings(NOON_MS + DAY_MS)
        self.put(statistics, 1, 100 * S, NOON_MS)
        assert statistics.mornings(NOON_MS + DAY_MS) == Mornings(0, 5, 0, 0)


def stats(rig, name: str, key: str) -> BrokerStatsData | None:
    answer = rig.call(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
    if answer.code != ResponseCode.SUCCESS:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        return None
    return BrokerStatsData.decode(answer.body)


class TestCounters:
    def test_messages_of_a_topic_by_number_and_size(self, rig):
        for _ in range(3):
            rig.sent_ok("T", b"hello")
        nums, size = stats(rig, "TOPIC_PUT_NUMS", "T"), stats(rig, "TOPIC_PUT_SIZE", "T")
        assert nums is not None
        assert size is not None
        assert [nums.stats_minute.sum, nums.stats_hour.sum, nums.stats_day.sum] == [3, 3, 3]
        assert nums.stats_minute.avgpt == 1.0
        assert size.stats_day.sum == rig.store.log.written_end
        rig.advance(60_000)
        later = stats(rig, "TOPIC_PUT_NUMS", "T")
        assert later is not None
        assert (later.stats_minute.sum, later.stats_minute.tps, later.stats_day.sum) == (0, 0.0, 3)

    def test_deliveries_of_a_group_and_of_the_broker(self, rig):
        rig.sent_ok("T")
        rig.sent_ok("T")
        rig.pull("T", 0, group="g")
        got = stats(rig, "GROUP_GET_NUMS", "T@g")
        whole = stats(rig, "BROKER_GET_NUMS", "DefaultCluster")
        put = stats(rig, "BROKER_PUT_NUMS", "DefaultCluster")
        assert got is not None
        assert whole is not None
        assert put is not None
        assert (got.stats_minute.sum, got.stats_minute.avgpt) == (2, 2.0)
        assert (whole.stats_minute.sum, put.stats_minute.sum) == (2, 2)

    def test_what_was_sent_back_and_what_died(self, rig):
        rig.sent_ok("T")
        offset = rig.records("T")[0].physical_offset
        fields = {"offset": offset, "group": "g", "originTopic": "T"}
        rig.call(RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, "delayLevel": 0})
        rig.call(RequestCode.CONSUMER_SEND_MSG_BACK, {**fields, "delayLevel": -1})
        back, dead = stats(rig, "SNDBCK_PUT_NUMS", "T@g"), stats(rig, "DLQ_PUT_NUMS", "T@g")
        assert back is not None
        assert dead is not None
        assert (back.stats_day.sum, dead.stats_day.sum) == (2, 1)

    def test_nothing_counted_and_nothing_known_are_errors_to_the_tool(self, rig):
        for name, key in (("TOPIC_PUT_NUMS", "nobody"), ("BROKER_PUT_NUMS", "OtherCluster"), ("MOON_PHASE", "T")):
            assert stats(rig, name, key) is None
        answer = rig.call(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "MOON_PHASE", "statsKey": "T"})
        assert "TOPIC_PUT_NUMS" in (answer.remark or "")  # what can be asked for

    def test_deleted_topics_and_groups_give_their_places_back(self, rig):
        rig.sent_ok("T")
        rig.sent_ok("U")
        rig.pull("T", group="g")
        rig.pull("U", group="g")
        rig.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert stats(rig, "TOPIC_PUT_NUMS", "T") is None
        assert stats(rig, "GROUP_GET_NUMS", "T@g") is None
        assert stats(rig, "GROUP_GET_NUMS", "U@g") is not None
        rig.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
        assert stats(rig, "GROUP_GET_NUMS", "U@g") is None


class TestPutLatency:
    def runtime(self, rig) -> dict[str, str]:
        return dict(KVTable.decode(rig.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table)

    def test_a_slow_send_shows_in_percentiles_and_distribution(self, rig):
        peer = rig.peer()
        peer.waited_ms = 30
        rig.sent_ok("T", peer=peer)
        facts = self.runtime(rig)
        assert 30 <= float(facts["putLatency99"]) <= 37
        assert facts["putMessageEntireTimeMax"] == "30"
        assert "[10~50ms]:1 " in facts["putMessageDistributeTime"]

    def test_one_message_in_so_many_is_timed(self, rig):
        for _ in range(2 * LATENCY_SAMPLE):
            rig.sent_ok("T")
        assert "[<=0ms]:2 " in self.runtime(rig)["putMessageDistributeTime"]


def test_the_room_on_the_disk_is_told_in_words(rig):
    def shown() -> str:
        return KVTable.decode(rig.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table["commitLogDirCapacity"]

    assert shown() == ""
    for room, words in (
        ((252 << 30, (224 << 30) + (614 << 20)), "Total : 252.0 GiB, Free : 224.6 GiB."),
        ((1023, 0), "Total : 1023 B, Free : 0 B."),
        ((1 << 60, 5_427), "Total : 1.0 EiB, Free : 5.3 KiB."),
    ):
        rig.broker.rooms.administration.broker.room = lambda room=room: room
        assert shown() == words
