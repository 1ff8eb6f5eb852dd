"""Taking timer messages in: which ones wait, for what, and which are refused with nothing stored."""

from __future__ import annotations

from typing import ClassVar

import pytest

from orbitmq.limits.timers import TIMER_DELIVER_MS_MAX
from orbitmq.protocol.batches import BatchItem, encode_batch
from orbitmq.protocol.filtering.tags import tags_code
from orbitmq.protocol.names import FAR_TIMER_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.protocol.properties import decode_properties, encode_properties
from orbitmq.protocol.recall_handles import RecallHandle, decode_handle
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.timing.timers.facts import facts_of_record

NOW = 1_700_000_000_000
KEY = "K" * 32


def values(record) -> dict[str, str]:
    return decode_properties(record.properties)


def due_ms(record) -> int:
    """When a waiting message falls due, as the timers see it."""
    facts = facts_of_record(record, 1_000)
    assert facts is not None
    return facts.deliver_ms


def waiting(rig):
    """What stands in the timer topic."""
    return rig.records(TIMER_TOPIC)


def nothing_stored(rig) -> bool:
    return rig.store.log.written_end == 0


class TestWaiting:
    def test_a_message_with_a_time_waits_in_the_timer_topic(self, rig) -> None:
        answer = rig.sent_ok(
            "T",
            b"x",
            {"UNIQ_KEY": KEY, "KEYS": "a b", "TAGS": "t", "TIMER_DELIVER_MS": str(NOW + 5_250)},
            queue_id=3,
            flag=7,
        )
        (record,) = waiting(rig)
        assert (record.topic, record.queue_id, record.body, record.flag) == (TIMER_TOPIC, 0, b"x", 7)
        assert record.prepared_transaction_offset == 0
        assert values(record) == {
            "UNIQ_KEY": KEY,
            "KEYS": "a b",
            "TAGS": "t",
            "TIMER_DELIVER_MS": str(NOW + 5_250),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
            "TIMER_OUT_MS": str(NOW + 5_000),
            "REAL_TOPIC": "T",
            "REAL_QID": "3",
        }
        assert answer.fields["queueId"] == "3"
        assert rig.records("T", 3) == []
        assert rig.store.queues.get(TIMER_TOPIC, 0).unit(0)[2] == tags_code("t")

    @pytest.mark.parametrize(
        ("name", "value", "deliver_ms"),
        [
            ("TIMER_DELAY_SEC", "7", NOW + 7_001),
            ("TIMER_DELAY_MS", "1", NOW + 2),
            ("TIMER_DELIVER_MS", f"{NOW + 1}", NOW + 1),
        ],
    )
    def test_each_of_the_three_properties(self, rig, name: str, value: str, deliver_ms: int) -> None:
        rig.sent_ok("T", b"x", {name: value})
        assert due_ms(waiting(rig)[0]) == deliver_ms

    @pytest.mark.parametrize(
        ("times", "is_written"),
        [
            ({"TIMER_DELIVER_MS": str(NOW + 5_250)}, False),
            ({"TIMER_DELIVER_MS": f"{NOW + 5_250:015}"}, True),
            ({"TIMER_DELIVER_MS": str(NOW + 5_250), "TIMER_DELAY_MS": "5249"}, True),
        ],
    )
    def test_a_time_that_the_sender_states_is_not_written_twice(self, rig, times, is_written: bool) -> None:
        rig.sent_ok("T", b"x", times)  # the broker makes its key: the general way
        rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, **times})
        assert [due_ms(record) for record in waiting(rig)] == [NOW + 5_250] * 2
        assert ["ORBITMQ_DUE_MS" in values(record) for record in waiting(rig)] == [is_written] * 2

    @pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
    def test_a_handle_is_given_for_what_waits(self, rig, code: int) -> None:
        answer = rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELIVER_MS": str(NOW + 5_250)}, code=code)
        assert decode_handle(answer.fields["recallHandle"]) == RecallHandle("T", "broker-a", NOW + 5_001, KEY)

    def test_a_handle_names_the_key_that_the_broker_made(self, rig) -> None:
        answer = rig.sent_ok("T", b"x", {"TIMER_DELIVER_MS": str(NOW + 5_250)})
        assert decode_handle(answer.fields["recallHandle"]).message_id == answer.fields["transactionId"]

    def test_the_place_of_a_client_is_not_believed(self, rig) -> None:
        forged = {
            "REAL_TOPIC": "U",
            "REAL_QID": "9",
            "ORBITMQ_DUE_MS": "5",
            "ORBITMQ_LEFT_MS": "6",
            "ORBITMQ_UNIQ_KEY": "z",
        }
        rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELAY_SEC": "5", **forged}, queue_id=1)
        stored = values(waiting(rig)[0])
        assert (stored["REAL_TOPIC"], stored["REAL_QID"], stored["ORBITMQ_DUE_MS"]) == ("T", "1", str(NOW + 5_001))
        assert "ORBITMQ_LEFT_MS" not in stored
        assert "ORBITMQ_UNIQ_KEY" not in stored
        assert list(stored)[-4:] == ["TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID", "ORBITMQ_DUE_MS"]

    def test_a_cancellation_of_a_client_waits_with_its_target(self, rig) -> None:
        answer = rig.sent_ok(
            "T", b"0", {"UNIQ_KEY": KEY, "TIMER_DEL_UNIQKEY": f"T+{KEY}", "TIMER_DELIVER_MS": str(NOW + 5_001)}
        )
        stored = values(waiting(rig)[0])
        assert (stored["TIMER_OUT_MS"], stored["TIMER_DEL_UNIQKEY"]) == (str(NOW + 5_000), f"T+{KEY}")
        assert "recallHandle" not in answer.fields

    def test_a_retry_with_a_time_waits_and_has_no_handle(self, rig) -> None:
        answer = rig.sent_ok("%RETRY%g", b"x", {"UNIQ_KEY": KEY, "TIMER_DELAY_MS": "90000"}, reconsumeTimes=1)
        assert values(waiting(rig)[0])["REAL_TOPIC"] == "%RETRY%g"
        assert waiting(rig)[0].reconsume_times == 1
        assert "recallHandle" not in answer.fields

    def test_a_retry_over_its_limit_is_a_dead_letter_at_once(self, rig) -> None:
        rig.sent_ok("%RETRY%g", b"x", {"TIMER_DELAY_MS": "90000"}, reconsumeTimes=17)
        assert waiting(rig) == []
        assert len(rig.records("%DLQ%g")) == 1

    def test_half_a_day_is_far_where_there_is_a_far_tier(self, make_rig) -> None:
        class Far:
            def accepts(self, deliver_ms: int, now_ms: int) -> bool:
                return deliver_ms - now_ms > 43_200_000

        rig = make_rig()
        rig.admission_far(Far())
        rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELAY_SEC": "43201"})
        rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELAY_MS": "43199999"})
        rig.sent_ok("T", b"0", {"UNIQ_KEY": KEY, "TIMER_DELAY_SEC": "43201", "TIMER_DEL_UNIQKEY": "T+K"})
        rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELIVER_MS": str(NOW + 43_201_001)})
        rig.sent_ok("T", b"x", {"TIMER_DELIVER_MS": str(NOW + 43_201_001)})  # the broker makes its key, the general way
        for far in rig.records(FAR_TIMER_TOPIC):
            assert values(far)["ORBITMQ_DUE_MS"] == str(NOW + 43_201_001), "the far tier reads ours only"
        assert len(rig.records(FAR_TIMER_TOPIC)) == 3
        assert len(waiting(rig)) == 2


class TestAtOnce:
    @pytest.mark.parametrize("text", [str(NOW), str(NOW - 1), "0", "-5"])
    def test_a_time_that_has_passed_means_now(self, rig, text: str) -> None:
        answer = rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELIVER_MS": text})
        (record,) = rig.records("T")
        assert values(record)["TIMER_DELIVER_MS"] == text
        assert "TIMER_OUT_MS" not in values(record)
        assert "recallHandle" not in answer.fields

    @pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS"])
    @pytest.mark.parametrize("text", ["0", "-1"])
    def test_no_delay_means_now(self, rig, name: str, text: str) -> None:
        rig.sent_ok("T", b"x", {name: text})
        assert len(rig.records("T")) == 1

    def test_what_was_delivered_by_a_timer_is_an_ordinary_message(self, rig) -> None:
        rig.sent_ok("T", b"x", {"TIMER_OUT_MS": str(NOW + 9_000), "TIMER_DELIVER_MS": str(NOW + 9_500)})
        assert len(rig.records("T")) == 1

    def test_a_delay_level_wins(self, rig) -> None:
        rig.sent_ok("T", b"x", {"DELAY": "3", "TIMER_DELIVER_MS": str(NOW + 9_500), "TIMER_DELAY_SEC": "soon"})
        (record,) = rig.records(SCHEDULE_TOPIC, 2)
        assert "TIMER_DELIVER_MS" not in values(record)
        assert "TIMER_DELAY_SEC" not in values(record)
        assert waiting(rig) == []


class TestRefused:
    def refused(self, rig, properties: dict[str, str], code: int, *words: str, topic: str = "T", **more) -> None:
        answer = rig.send(topic, b"x", properties, **more)
        assert answer.code == code
        assert not [word for word in words if word not in answer.remark], answer.remark
        assert nothing_stored(rig)

    @pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
    @pytest.mark.parametrize("text", ["soon", "1.5", "1e3", "0x10", "9" * 20, " 5"])
    def test_what_is_no_number(self, rig, name: str, text: str) -> None:
        self.refused(rig, {name: text}, ResponseCode.MESSAGE_ILLEGAL, name, text)

    def test_beyond_the_year_9999(self, rig) -> None:
        last = str(TIMER_DELIVER_MS_MAX)
        self.refused(rig, {"TIMER_DELIVER_MS": f"{TIMER_DELIVER_MS_MAX + 1}"}, ResponseCode.MESSAGE_ILLEGAL, last)
        rig.sent_ok("T", b"x", {"TIMER_DELIVER_MS": last})

    def test_beyond_the_limit_where_there_is_one(self, make_rig) -> None:
        rig = make_rig(timer_max_delay_sec=60)
        limit = ("60000", "timerMaxDelaySec")
        self.refused(rig, {"TIMER_DELIVER_MS": f"{NOW + 60_001}"}, ResponseCode.MESSAGE_ILLEGAL, *limit)
        self.refused(rig, {"TIMER_DELAY_SEC": "61"}, ResponseCode.MESSAGE_ILLEGAL, *limit)
        rig.sent_ok("T", b"x", {"TIMER_DELIVER_MS": f"{NOW + 60_000}"})
        rig.sent_ok("T", b"x", {"TIMER_DELAY_SEC": "60"})

    def test_where_timers_are_switched_off(self, make_rig) -> None:
        rig = make_rig(timer_wheel_enable=False)
        self.refused(rig, {"TIMER_DELAY_SEC": "5"}, ResponseCode.SYSTEM_ERROR, "timerWheelEnable")

    def test_a_cancellation_of_the_past(self, rig) -> None:
        cancel = {"TIMER_DEL_UNIQKEY": "T+K", "TIMER_DELIVER_MS": str(NOW)}
        self.refused(rig, cancel, ResponseCode.MESSAGE_ILLEGAL, "cancellation")

    def test_a_half_message(self, rig) -> None:
        self.refused(
            rig, {"TRAN_MSG": "true", "TIMER_DELAY_SEC": "5"}, ResponseCode.NO_PERMISSION, "transaction", sysFlag=4
        )

    @pytest.mark.parametrize(
        "topic", [TIMER_TOPIC, FAR_TIMER_TOPIC, "orbitmq_sys_timer_changes", "orbitmq_sys_recurring", SCHEDULE_TOPIC]
    )
    @pytest.mark.parametrize("properties", [{}, {"TIMER_DELAY_SEC": "5"}, {"TIMER_OUT_MS": "5", "REAL_TOPIC": "T"}])
    def test_writes_of_clients_into_the_topics_of_timers(self, rig, topic: str, properties: dict[str, str]) -> None:
        self.refused(rig, properties, ResponseCode.NO_PERMISSION, topic, topic=topic)

    @pytest.mark.parametrize("properties", [{}, {"TIMER_DELAY_SEC": "5"}])
    def test_topics_that_may_be_ours_one_day(self, rig, properties: dict[str, str]) -> None:
        topic = "orbitmq_sys_of_a_later_release"
        self.refused(rig, properties, ResponseCode.NO_PERMISSION, topic, topic=topic)
        fields = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG"}
        made = rig.call(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {"topic": topic, "defaultTopic": "TBW102", "topicSysFlag": 0, "order": False, **fields},
        )
        assert made.code == ResponseCode.INVALID_PARAMETER
        assert "system topic" in made.remark
        assert rig.broker.topics.get(topic) is None

    def test_properties_that_do_not_fit_with_what_is_added(self, rig) -> None:
        room = 32_767 - 200
        self.refused(rig, {"TIMER_DELAY_SEC": "5", "filler": "x" * room}, ResponseCode.MESSAGE_ILLEGAL, "32767")


class TestBatches:
    def batch(self, rig, *properties: dict[str, str], own: dict[str, str] | None = None, **more):
        items = [BatchItem(0, b"body%d" % number, encode_properties(one)) for number, one in enumerate(properties)]
        return rig.send(
            "T", encode_batch(items), own or {"UNIQ_KEY": KEY}, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, **more
        )

    def test_one_due_time_makes_as_many_timer_messages(self, rig) -> None:
        due = {"TIMER_DELIVER_MS": str(NOW + 5_250)}
        answer = self.batch(rig, due | {"UNIQ_KEY": "A"}, due | {"UNIQ_KEY": "B", "TAGS": "t"}, due, queue_id=2)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.fields["queueId"] == "2"
        assert len(answer.fields["msgId"].split(",")) == 3
        assert "recallHandle" not in answer.fields
        records = waiting(rig)
        assert [record.body for record in records] == [b"body0", b"body1", b"body2"]
        for record in records:
            stored = values(record)
            assert (stored["REAL_TOPIC"], stored["REAL_QID"], due_ms(record)) == ("T", "2", NOW + 5_250)
        assert [values(record)["UNIQ_KEY"] for record in records][:2] == ["A", "B"]
        assert rig.records("T", 2) == []

    def test_the_time_of_the_batch_is_that_of_its_messages(self, rig) -> None:
        self.batch(rig, {"UNIQ_KEY": "A"}, {"UNIQ_KEY": "B"}, own={"UNIQ_KEY": KEY, "TIMER_DELAY_SEC": "5"})
        assert [values(record)["ORBITMQ_DUE_MS"] for record in waiting(rig)] == [str(NOW + 5_001)] * 2

    def test_times_that_have_all_passed_are_no_times(self, rig) -> None:
        self.batch(rig, {"TIMER_DELIVER_MS": str(NOW)}, {"TIMER_DELIVER_MS": "5"})
        assert len(rig.records("T")) == 2

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ({"TIMER_DELIVER_MS": str(NOW + 5_250)}, {"TIMER_DELIVER_MS": str(NOW + 5_251)}),
            ({"TIMER_DELIVER_MS": str(NOW + 5_250)}, {"TIMER_DELIVER_MS": str(NOW)}),
            ({"TIMER_DELIVER_MS": str(NOW + 5_250)}, {}),
            ({"UNIQ_KEY": "A"}, {"TIMER_DELAY_SEC": "5"}),
        ],
    )
    def test_mixed_times_are_refused_whole(self, rig, first: dict[str, str], second: dict[str, str]) -> None:
        answer = self.batch(rig, first, second)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "different times" in answer.remark
        assert nothing_stored(rig)

    def test_a_batch_may_ask_for_a_time_for_each_message(self, rig) -> None:
        """The last two take the general way, the others the short one."""
        answer = self.batch(
            rig,
            {"UNIQ_KEY": "A", "TIMER_DELIVER_MS": str(NOW + 9_250)},
            {"UNIQ_KEY": "B", "TIMER_DELIVER_MS": str(NOW + 5_250)},
            {"UNIQ_KEY": "C"},
            {"UNIQ_KEY": "D", "TIMER_DELIVER_MS": str(NOW)},
            {"UNIQ_KEY": "E", "TIMER_DELAY_SEC": "5"},
            {"UNIQ_KEY": "F", "TIMER_DELIVER_MS": str(NOW + 7_000), "TRACE_ON": "x"},
            {"TIMER_DELIVER_MS": str(NOW + 8_000)},
            own={"UNIQ_KEY": KEY, "ORBITMQ_OWN_TIMES": "true"},
        )
        assert answer.code == ResponseCode.SUCCESS
        assert len(answer.fields["msgId"].split(",")) == 7
        found = [(record.body, due_ms(record)) for record in waiting(rig)]
        assert found == [
            (b"body0", NOW + 9_250), (b"body1", NOW + 5_250), (b"body4", NOW + 5_001), (b"body5", NOW + 7_000),
            (b"body6", NOW + 8_000),
        ]  # fmt: skip
        assert all(values(record)["REAL_TOPIC"] == "T" for record in waiting(rig))
        assert [record.body for record in rig.records("T")] == [b"body2", b"body3"]
        assert not any("ORBITMQ_OWN_TIMES" in values(record) for record in [*waiting(rig), *rig.records("T")])

    def test_one_bad_time_refuses_all(self, rig) -> None:
        answer = self.batch(rig, {"TIMER_DELIVER_MS": str(NOW + 5_250)}, {"TIMER_DELIVER_MS": "soon"})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert nothing_stored(rig)

    @pytest.mark.parametrize(
        ("one", "word"),
        [
            ({"TIMER_DELAY_SEC": "soon"}, "TIMER_DELAY_SEC"),
            ({"TIMER_DELAY_SEC": "5", "DELAY": "2"}, "DELAY"),
            ({"TIMER_DELAY_SEC": "5", "TIMER_DEL_UNIQKEY": "T+K"}, "cancellation"),
            ({"TIMER_DELAY_SEC": "5", "TRAN_MSG": "true"}, "TRAN_MSG"),
        ],
    )
    def test_what_cannot_stand_in_a_batch(self, rig, one: dict[str, str], word: str) -> None:
        answer = self.batch(rig, one, one)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert word in answer.remark
        assert nothing_stored(rig)


class TestRepeats:
    ONCE: ClassVar = {"ORBITMQ_SCOPE": "s", "ORBITMQ_EPOCH": "1", "ORBITMQ_ONCE_KEY": "k"}

    def test_a_repeat_is_answered_with_the_place_and_the_handle_of_the_first(self, rig) -> None:
        first = rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELAY_SEC": "5", **self.ONCE})
        rig.clock.advance(3_000)
        second = rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELAY_SEC": "5", **self.ONCE})
        assert first.fields.items() <= second.fields.items()
        assert len(waiting(rig)) == 1

    def test_a_repeat_after_the_due_time_is_a_repeat(self, rig) -> None:
        message = {"UNIQ_KEY": KEY, "TIMER_DELIVER_MS": str(NOW + 5_000), **self.ONCE}
        first = rig.sent_ok("T", b"x", message)
        rig.clock.advance(9_000)
        rig.deliver()
        assert first.fields.items() <= rig.sent_ok("T", b"x", message).fields.items()
        assert len(rig.records("T")) == 1

    def test_the_place_is_learned_from_the_log_as_well(self, rig) -> None:
        first = rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELAY_SEC": "5", **self.ONCE}, queue_id=2)
        rig.close()
        (rig.root / "orbitmq.once").unlink()
        rig.open()
        second = rig.sent_ok("T", b"x", {"UNIQ_KEY": KEY, "TIMER_DELAY_SEC": "5", **self.ONCE}, queue_id=2)
        assert first.fields.items() <= second.fields.items()

    def test_a_batch_with_one_time_is_repeated_as_a_whole(self, rig) -> None:
        def batch():
            items = [
                BatchItem(
                    0,
                    b"x",
                    encode_properties({"TIMER_DELIVER_MS": str(NOW + 5_000), **self.ONCE, "ORBITMQ_ONCE_KEY": key}),
                )
                for key in "ab"
            ]
            return rig.sent_ok(
                "T", encode_batch(items), {}, code=RequestCode.SEND_BATCH_MESSAGE, batch=True, queue_id=1
            )

        first, second = batch(), batch()
        assert second.fields["msgId"] == first.fields["msgId"]
        assert second.fields["queueId"] == "1"
        assert len(waiting(rig)) == 2
