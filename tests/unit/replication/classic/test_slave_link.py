"""A slave's connection to its master."""

from __future__ import annotations

import pytest

from orbitmq.protocol.replication.frames import encode_report, encode_transfer_head
from orbitmq.protocol.replication.opening import encode_opening
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.replication.classic.link_settings import LinkSettings
from orbitmq.replication.classic.slave_link import ReportedEnd, SlaveLink, SlaveLinkState

MS = 1_000_000
SETTINGS = LinkSettings(unappended_bytes_max=100)


def frame(position: int, body: bytes = b"") -> bytes:
    return encode_transfer_head(position, len(body)) + body


def following(log_end: int = 1_000, reports: ReportedEnd = ReportedEnd.WRITTEN) -> SlaveLink:
    link = SlaveLink(SETTINGS, reports, 0)
    link.tick(0)
    assert link.state is SlaveLinkState.CONNECTING
    link.connected(log_end, 0)
    assert link.take_output() == encode_report(log_end)
    return link


def closed(link: SlaveLink) -> LinkEnd:
    assert link.state is SlaveLinkState.PAUSED
    assert link.closed is not None
    assert link.take_output() == b""
    return link.closed.why


def test_the_first_report_leaves_at_once() -> None:
    link = SlaveLink(SETTINGS, ReportedEnd.WRITTEN, 0)
    assert link.due_ns == 0
    link.tick(0)
    link.connected(77, 0, opening=encode_opening(bytes(32)))
    assert link.take_output() == encode_opening(bytes(32)) + encode_report(77)
    assert link.take_output() == b""


def test_pieces_are_passed_on_as_they_come() -> None:
    link = following()
    stream = frame(1_000, b"abc") + frame(1_003) + frame(1_003, b"de")
    pieces = [piece for at in range(len(stream)) for piece in link.receive_data(stream[at : at + 1], 5)]
    assert [(position, bytes(data)) for position, data in pieces] == [
        (1_000, b"a"),
        (1_001, b"b"),
        (1_002, b"c"),
        (1_003, b"d"),
        (1_004, b"e"),
    ]
    assert link.received_end == 1_005
    assert link.unappended_bytes == 5


@pytest.mark.parametrize(
    "wrong", [frame(999, b"abc"), frame(1_001, b"abc"), frame(1_001), frame(1_000, b"a") + frame(1_000, b"b")]
)
def test_a_transfer_that_does_not_go_on_at_our_end(wrong: bytes) -> None:
    link = following()
    assert link.receive_data(wrong, 9) == []
    assert closed(link) is LinkEnd.MISMATCH
    assert link.receive_data(frame(1_000, b"abc"), 10) == []


def test_a_slave_without_a_log_takes_what_comes() -> None:
    link = following(0)
    assert link.receive_data(frame(4_096), 1) == []
    assert link.received_end == 4_096
    link.receive_data(frame(4_096, b"abc"), 2)
    assert link.unappended_bytes == 3
    link.appended(4_099, 4_096, 3)
    assert link.take_output() == encode_report(4_099)
    link.receive_data(frame(0, b"abc"), 4)
    assert closed(link) is LinkEnd.MISMATCH


def test_an_empty_master_sends_nothing_yet() -> None:
    link = following(0)
    assert link.receive_data(frame(0), 1) == []
    link.appended(0, 0, 1)
    assert link.take_output() == b""


@pytest.mark.parametrize("length", [-1, 1 << 22])
def test_a_malformed_transfer(length: int) -> None:
    link = following()
    link.receive_data((1_000).to_bytes(8, "big") + length.to_bytes(4, "big", signed=True), 1)
    assert closed(link) is LinkEnd.BAD_FRAME


def test_what_was_written_is_reported() -> None:
    link = following()
    link.receive_data(frame(1_000, b"abcdef"), 1)
    assert link.take_output() == b""
    link.appended(1_002, 1_000, 2)
    link.appended(1_004, 1_000, 2)
    assert link.take_output() == encode_report(1_004)  # the last one says it all
    link.appended(1_004, 1_004, 3)
    assert link.take_output() == b""


def test_what_was_synced_is_reported_where_reports_promise_that() -> None:
    link = following(reports=ReportedEnd.SYNCED)
    link.receive_data(frame(1_000, b"abcdef"), 1)
    link.appended(1_006, 1_000, 2)
    assert link.take_output() == b""
    assert link.unappended_bytes == 0
    link.appended(1_006, 1_003, 3)
    assert link.take_output() == encode_report(1_003)


def test_a_heartbeat_repeats_the_last_report() -> None:
    link = following()
    assert link.due_ns == 5_000 * MS
    link.tick(4_999 * MS)
    assert link.take_output() == b""
    link.tick(5_000 * MS)
    assert link.take_output() == encode_report(1_000)
    link.receive_data(frame(1_000), 6_000 * MS)
    assert link.due_ns == 10_000 * MS


def test_a_master_that_is_silent() -> None:
    link = following()
    for second in range(1, 20):
        link.tick(second * 1_000 * MS)
        link.take_output()  # our own reports do not end the silence
    assert link.due_ns == 20_000 * MS
    link.tick(20_000 * MS)
    assert closed(link) is LinkEnd.SILENT


def test_a_slave_that_does_not_read_does_not_blame_the_master() -> None:
    link = following()
    link.receive_data(frame(1_000, bytes(100)), 1)
    assert link.wants_data
    link.receive_data(frame(1_100, b"x"), 1)
    assert not link.wants_data
    for second in range(5, 60, 5):
        link.tick(second * 1_000 * MS)
        assert link.take_output() == encode_report(1_000)
    link.appended(1_050, 1_050, 60_000 * MS)
    assert link.wants_data
    link.tick(79_999 * MS)
    assert link.state is SlaveLinkState.FOLLOWING
    link.tick(80_000 * MS)
    assert closed(link) is LinkEnd.SILENT


def test_a_record_that_is_larger_than_what_may_wait_is_read_to_its_end() -> None:
    link = following()
    link.receive_data(frame(1_000, bytes(150)), 1)
    link.appended(1_030, 1_030, 1, unfinished_bytes=120)
    assert link.wants_data
    link.receive_data(frame(1_150, bytes(101)), 1)
    assert not link.wants_data, "whether these end the record is not known yet"
    link.appended(1_030, 1_030, 1, unfinished_bytes=221)
    assert link.wants_data
    link.appended(1_251, 1_251, 1)
    assert (link.wants_data, link.unappended_bytes) == (True, 0)


def test_it_connects_again_soon_after_a_connection_that_lasted_and_then_more_and_more_seldom() -> None:
    link, now_ns = following(), 7 + 5_000 * MS
    for pause_ms in (250, 500, 1_000, 2_000, 4_000, 5_000, 5_000):
        link.failed(LinkEnd.LOST, now_ns, "reset by peer")
        assert str(link.closed) == "connection lost: reset by peer"
        assert link.lasted is (pause_ms == 250)
        assert not link.wants_data
        assert link.due_ns == now_ns + pause_ms * MS
        link.tick(link.due_ns - 1)
        assert link.state is SlaveLinkState.PAUSED
        now_ns = link.due_ns
        link.tick(now_ns)
        assert (link.state, link.due_ns) == (SlaveLinkState.CONNECTING, None)
    link.connected(900, now_ns)  # its log was cut meanwhile
    assert link.take_output() == encode_report(900)
    assert link.closed is None
    link.failed(LinkEnd.LOST, now_ns + 4_999 * MS)
    assert link.due_ns == now_ns + 9_999 * MS, "a connection that did not last is one more failure"


def test_a_first_connection_that_does_not_last_is_no_reason_to_hurry() -> None:
    link = following()
    link.failed(LinkEnd.REFUSED, 7)
    assert (link.due_ns, link.lasted) == (7 + 250 * MS, False)
    link.tick(7 + 250 * MS)
    link.connected(900, 7 + 250 * MS)
    link.failed(LinkEnd.REFUSED, 8 + 250 * MS)
    assert link.due_ns == 8 + 750 * MS


def test_half_a_frame_does_not_survive_its_connection() -> None:
    link = following()
    link.receive_data(frame(1_000, b"abc")[:7], 1)
    link.failed(LinkEnd.LOST, 2)
    link.tick(2 + 5_000 * MS)
    link.connected(1_000, 3 + 5_000 * MS)
    assert [bytes(data) for _, data in link.receive_data(frame(1_000, b"abc"), 4 + 5_000 * MS)] == [b"abc"]


def test_a_log_that_is_shorter_than_what_was_reported() -> None:
    link = following()
    link.appended(999, 999, 1)
    assert closed(link) is LinkEnd.LOG_CUT


def test_what_was_not_received_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="received up to 1000 and written up to 1001"):
        following().appended(1_001, 1_001, 1)


def test_it_stops_from_every_state() -> None:
    for state in SlaveLinkState:
        link = SlaveLink(SETTINGS, ReportedEnd.WRITTEN, 0)
        if state is not SlaveLinkState.PAUSED:
            link.tick(0)
        if state is SlaveLinkState.FOLLOWING:
            link.connected(5, 0)
        link.stop()
        link.stop()
        link.tick(10**15)
        link.failed(LinkEnd.LOST, 0)
        link.appended(9, 9, 9)
        assert (link.state, link.due_ns, link.take_output()) == (SlaveLinkState.STOPPED, None, b"")


def test_a_connection_that_nobody_asked_for() -> None:
    with pytest.raises(ValueError, match="state PAUSED"):
        SlaveLink(SETTINGS, ReportedEnd.WRITTEN, 0).connected(0, 0)
