"""The broker as a whole: unknown codes, failing handlers, look-ups, its own state, idleness."""

from __future__ import annotations

import pytest

from orbitmq.protocol.records import iter_records
from orbitmq.protocol.remoting.bodies import KVTable
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request


@pytest.mark.parametrize("code", [99999, -1, 200056, RequestCode.END_TRANSACTION, RequestCode.SET_COMMITLOG_READ_MODE])
def test_what_is_not_served_is_said_so(rig, code):
    answer = rig.call(code, {})
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert str(int(code)) in answer.remark


def test_oneway_gets_no_answer_even_when_it_fails(rig):
    assert rig.try_call(99999, oneway=True) is None
    assert rig.try_call(RequestCode.HEART_BEAT, None, b"{", oneway=True) is None


def test_failing_handler_is_answered_and_counted(rig, caplog):
    def fail(command, peer):
        raise RuntimeError("boom")

    rig.broker._handlers[RequestCode.GET_MAX_OFFSET] = fail
    answer = rig.call(RequestCode.GET_MAX_OFFSET, {})
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "RuntimeError: boom")
    assert rig.broker.statistics.failed_handler_count == 1
    assert "boom" in caplog.text


@pytest.mark.parametrize("body", [b"", b"{", b"null", b"[]", b'{"mqSet":[{}]}', b"\x00" * 40])
def test_no_request_breaks_the_broker(rig, body):
    """Requests with nothing in them, or with a body that makes no sense, get the protocol's answers."""
    for code in RequestCode:
        for fields in ({}, {"topic": "T", "consumerGroup": "g", "group": "g", "queueId": "x", "offset": "9" * 30}):
            assert rig.try_call(code, fields, body) is not None, code
    assert rig.broker.statistics.failed_handler_count == 0


def test_view_by_position(rig):
    rig.sent_ok("T", b"x")
    (record,) = rig.records("T")
    answer = rig.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": record.physical_offset})
    assert [found.body for found in iter_records(bytes(answer.body))] == [b"x"]
    for offset in (record.physical_offset + 1, -1, 1 << 60):
        missing = rig.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
        assert (missing.code, str(offset) in missing.remark) == (ResponseCode.SYSTEM_ERROR, True)


class TestQueryByKey:
    def ask(self, rig, key, **more):
        fields = {"topic": "T", "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60, **more}
        return rig.call(RequestCode.QUERY_MESSAGE, fields)

    def test_by_one_of_several_keys(self, rig):
        rig.sent_ok("T", b"1", {"KEYS": "a b", "UNIQ_KEY": "u" * 32})
        rig.sent_ok("T", b"2", {"KEYS": "b"})
        answer = self.ask(rig, "b")
        assert [record.body for record in iter_records(bytes(answer.body))] == [b"1", b"2"]
        assert answer.fields["indexLastUpdateTimestamp"] == str(rig.clock.now_ms())
        assert len(list(iter_records(bytes(self.ask(rig, "b", maxNum=1).body)))) == 1
        answer = self.ask(rig, "u" * 32, maxNum=0, _UNIQUE_KEY_QUERY=True)
        assert [record.body for record in iter_records(bytes(answer.body))] == [b"1"]

    def test_nothing_found(self, rig):
        answer = self.ask(rig, "a")
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


def test_runtime_information_has_what_tools_parse(rig):
    rig.sent_ok("T")
    rig.pull("T")
    rig.advance(20_000)
    table = KVTable.decode(rig.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    for name in ("putTps", "getTransferredTps", "getTotalTps", "getFoundTps", "getMissTps"):
        assert [float(part) >= 0 for part in table[name].split(" ")] == [True] * 3
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("1", "1")
    assert table["brokerVersionDesc"] == "V5_3_3"
    assert int(table["sendThreadPoolQueueCapacity"]) == 10_000
    assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 20 seconds ]"


def test_what_was_refused_or_lowered_can_be_read(rig):
    rig.call(RequestCode.POP_ROLLBACK)
    rig.sent_ok("T", b"x", {"DELAY": "99"})
    busy = rig.peer()
    busy.waited_ms = 201
    rig.send("T", peer=busy)
    rig.advance(20_000)
    table = KVTable.decode(rig.call(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    names = ("UnsupportedRequests", "LoweredDelayLevels", "BusyAnswers", "FailedHandlers", "DeadLetters")
    assert [table[f"orbitmq{name}"] for name in names] == ["1", "1", "1", "0", "0"]


def test_rates_are_those_of_the_window(rig):
    for _ in range(100):
        rig.sent_ok("T")
    rig.clock.advance(10_000)
    rates = rig.broker.statistics.rates(rig.clock.monotonic_ns())["putTps"].split()
    assert rates == ["10.0000"] * 3
    rig.clock.advance(50_000)
    rates = [float(rate) for rate in rig.broker.statistics.rates(rig.clock.monotonic_ns())["putTps"].split()]
    assert rates[0] == 0


def test_settings_are_shown(rig):
    answer = rig.call(RequestCode.GET_BROKER_CONFIG)
    lines = bytes(answer.body).decode().splitlines()
    assert "brokerName=broker-a" in lines
    assert "timestamp" in answer.fields["version"]


def test_idle_broker_plans_nothing(rig):
    rig.sent_ok("T")
    assert rig.broker.next_tick_ns is None
    rig.advance(3_600_000)
    assert sum(rig.broker.deadlines.wakeups.values()) == 0


def test_message_ids_are_host_and_position(rig):
    answer = rig.sent_ok("T")
    assert answer.fields["msgId"] == f"0A000001{10_911:08X}{0:016X}"


def test_nothing_is_answered_before_it_is_written(rig):
    """Within a turn a send has no answer; the turn's end writes and answers."""
    peer = rig.peer()
    fields = {"b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "", "j": "0"}
    assert rig.give(request(RequestCode.SEND_MESSAGE_V2, fields, b"x"), peer) is None
    assert peer.sent == []
    assert rig.broker.rooms.sends.unanswered_count == 1
    rig.broker.end_turn()
    assert [answer.code for answer in peer.sent] == [0]
    assert rig.broker.rooms.sends.unanswered_count == 0


def test_failed_write_is_not_acknowledged(rig, monkeypatch):
    rig.sent_ok("T")

    def fail():
        raise OSError("disk on fire")

    with monkeypatch.context() as patched:
        patched.setattr(type(rig.store.log), "write", lambda self: fail())
        answer = rig.send("T")
    assert answer.code == ResponseCode.SYSTEM_ERROR, "nobody knows whether the next start has it"
    assert "disk on fire" in answer.remark
    answer = rig.send("T")
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, "this one was not even tried"
