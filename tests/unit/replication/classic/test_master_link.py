"""One slave's connection as its master sees it."""

from __future__ import annotations

import itertools

import pytest

from orbitmq.protocol.replication.frames import TransferReader, encode_report, encode_transfer_head
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.replication.classic.link_settings import LinkSettings
from orbitmq.replication.classic.log_extent import LogExtent, LogRead
from orbitmq.replication.classic.master_link import MasterLink, MasterLinkState

MS = 1_000_000
FILE = 1_000
SETTINGS = LinkSettings(batch_bytes=64, body_bytes_max=200, window_bytes=300)


def record(size: int, fill: int = 0) -> bytes:
    return size.to_bytes(4, "big") + bytes((fill,)) * (size - 4)


class World:
    """A link with the log it reads from: records of the given sizes, with fillers where a file has no room for the next one."""

    def __init__(
        self, sizes: list[int], *, start: int = 0, settings: LinkSettings = SETTINGS, from_oldest: bool = False
    ) -> None:
        self.log = bytearray(start)
        self.start = start
        self.now_ns = 0
        for size in sizes:
            self.append(size)
        self.link = MasterLink(settings, self.extent, 0, from_oldest=from_oldest)

    def append(self, size: int) -> None:
        room = FILE - len(self.log) % FILE
        if room < size + 8:
            self.log += record(room)
        self.log += record(size, len(self.log) % 251)

    @property
    def extent(self) -> LogExtent:
        return LogExtent(self.start, len(self.log), FILE)

    def grow(self, *sizes: int) -> None:
        for size in sizes:
            self.append(size)
        self.link.log_is(self.extent)

    def report(self, position: int) -> None:
        self.link.receive_data(encode_report(position), self.now_ns)

    def begin(self, position: int) -> None:
        self.report(position)
        self.link.start_checked(True, self.now_ns)
        assert self.link.state is MasterLinkState.STREAMING

    def wait(self, ms: int) -> None:
        self.now_ns += ms * MS
        self.link.tick(self.now_ns)

    def send(self) -> list[LogRead]:
        """Everything that may be sent; the reads that it took."""
        reads = []
        while (read := self.link.next_read(self.now_ns)) is not None:
            reads.append(read)
            self.link.read_done(bytes(self.log[read.position : read.position + read.size]), self.now_ns)
        return reads

    def frames(self) -> list[tuple[int, bytes]]:
        reader = TransferReader()
        return [(position, bytes(data)) for part in self.link.take_output() for position, data in reader.receive(part)]

    def closed(self) -> LinkEnd:
        assert self.link.closed is not None
        assert self.link.state is MasterLinkState.CLOSED
        assert self.link.next_read(self.now_ns) is None
        assert self.link.take_output() == []
        assert self.link.due_ns is None
        assert self.link.acknowledged is None
        return self.link.closed.why


# --- where it begins ------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_first_report() -> None:
    world = World([40])
    world.wait(19_999)
    assert world.link.next_read(world.now_ns) is None
    assert world.frames() == []
    assert world.link.acknowledged is None


def test_a_slave_without_a_log_begins_with_the_newest_file() -> None:
    world = World([600, 600, 40])
    world.report(0)
    assert world.link.sent_end == 1_000
    world.report(0)  # it has nothing yet
    assert world.link.acknowledged == 0


def test_our_own_begins_with_the_oldest() -> None:
    world = World([600, 600, 40], start=1_000, from_oldest=True)
    world.report(0)
    assert world.link.sent_end == 1_000


def test_an_empty_log_begins_where_it_will() -> None:
    world = World([])
    world.report(0)
    assert world.send() == []
    world.grow(30)
    world.send()
    assert world.frames() == [(0, record(30))]


def test_a_slave_goes_on_where_a_record_begins() -> None:
    world = World([40, 50])
    world.report(40)
    assert (world.link.state, world.link.asked, world.link.acknowledged) == (MasterLinkState.CHECKING, 40, None)
    assert world.send() == []
    world.link.start_checked(True, world.now_ns)
    assert world.link.acknowledged == 40
    world.send()
    assert world.frames() == [(40, record(50, 40))]


@pytest.mark.parametrize("position", [1_000, 1_040])
def test_our_first_and_last_byte_need_no_look(position: int) -> None:
    world = World([40], start=1_000)
    world.report(position)
    assert world.link.state is MasterLinkState.STREAMING


@pytest.mark.parametrize(
    ("position", "why"),
    [(1_091, LinkEnd.BEYOND_END), (2**62, LinkEnd.BEYOND_END), (999, LinkEnd.BEHIND_START), (-1, LinkEnd.BAD_FRAME)],
)
def test_a_slave_that_cannot_be_served(position: int, why: LinkEnd) -> None:
    world = World([40, 50], start=1_000)
    world.report(position)
    assert world.closed() is why


def test_a_slave_that_ends_inside_a_record() -> None:
    world = World([40, 50])
    world.report(41)
    world.link.start_checked(False, world.now_ns)
    assert world.closed() is LinkEnd.INSIDE_RECORD
    assert "no record of ours begins" in str(world.link.closed)


def test_the_handshake_of_a_slave_with_a_controller_is_beyond_our_end() -> None:
    world = World([40])
    handshake = (1).to_bytes(4, "big") + bytes(4) + (2).to_bytes(8, "big")
    world.link.receive_data(handshake, 0)
    assert world.closed() is LinkEnd.BEYOND_END


# --- what is sent ---------------------------------------------------------------------------------------------------------


def test_transfers_have_whole_records() -> None:
    world = World([30, 30, 30, 30])
    world.begin(0)
    world.send()
    assert [len(data) for _, data in world.frames()] == [60, 60]


def test_a_record_larger_than_a_batch_is_one_transfer() -> None:
    world = World([30, 200, 30])
    world.begin(0)
    reads = world.send()
    assert [len(data) for _, data in world.frames()] == [30, 200, 30]
    assert [read.size for read in reads] == [64, 64, 200, 30]


def test_a_record_larger_than_a_transfer_is_cut() -> None:
    world = World([201, 30], settings=LinkSettings(batch_bytes=64, body_bytes_max=200, window_bytes=10_000))
    world.begin(0)
    world.send()
    frames = world.frames()
    assert [len(data) for _, data in frames] == [64, 64, 64, 9, 30]
    assert b"".join(data for _, data in frames) == world.log


def test_no_transfer_crosses_the_end_of_a_file() -> None:
    world = World(
        [100] * 30, settings=LinkSettings(batch_bytes=900, body_bytes_max=900, window_bytes=10_000), from_oldest=True
    )
    world.begin(0)
    world.send()
    frames = world.frames()
    assert b"".join(data for _, data in frames) == world.log
    assert all(position // FILE == (position + len(data) - 1) // FILE for position, data in frames)
    assert [position for position, _ in frames if position % FILE == 0] == [0, 1_000, 2_000, 3_000]


def test_a_window_is_not_acknowledged_at_most() -> None:
    world = World([50] * 12)
    world.begin(0)
    world.send()
    assert world.link.sent_end == 250  # 64 more would be beyond 300
    world.report(100)
    world.send()
    assert world.link.sent_end == 350
    assert world.link.acknowledged == 100


def test_a_record_that_is_larger_than_the_window_is_sent_to_its_end() -> None:
    world = World([50, 700, 50], settings=LinkSettings(batch_bytes=64, body_bytes_max=200, window_bytes=300))
    world.begin(0)
    world.send()
    assert world.link.sent_end == 750  # the next one waits for a report
    world.report(750)
    world.send()
    assert world.link.sent_end == len(world.log)


def test_one_read_at_a_time() -> None:
    world = World([30])
    world.begin(0)
    assert world.link.next_read(0) == (0, 30)
    assert world.link.next_read(0) is None
    for size in (0, 31):
        with pytest.raises(ValueError, match=f"{size} bytes were read"):
            world.link.read_done(bytes(size), 0)
        assert world.link.next_read(0) == (0, 30)


def test_what_is_sound_of_a_read_is_sent_before_it_ends_at_what_is_not() -> None:
    world = World([10, 20, 20])
    world.begin(0)
    assert world.link.next_read(0) == (0, 50)
    world.link.read_done(bytes(world.log[:30]), 0)
    assert world.frames() == [(0, bytes(world.log[:30]))]
    assert world.link.next_read(0) == (30, 20)
    world.link.read_failed("the record at 30 fails its check")
    assert world.closed() is LinkEnd.LOG_UNREADABLE


def test_a_rate_is_kept() -> None:
    world = World(
        [50] * 100,
        settings=LinkSettings(
            batch_bytes=50, body_bytes_max=50, window_bytes=10_000, limits_rate=True, rate_bytes_per_s=1_000
        ),
        from_oldest=True,
    )
    world.begin(0)
    while world.now_ns < 1_000 * MS:
        world.send()
        due_ns = world.link.due_ns
        assert due_ns is not None
        world.now_ns = max(due_ns, world.now_ns)
        world.link.take_output()
    assert world.link.sent_end in (1_000, 1_050)


def test_a_heartbeat_where_nothing_was_written_for_a_while() -> None:
    world = World([30])
    world.begin(30)
    assert world.link.due_ns == 5_000 * MS
    world.wait(4_999)
    assert world.frames() == []
    world.wait(1)
    assert world.frames() == [(30, b"")]
    assert world.link.due_ns == 10_000 * MS


def test_heartbeats_do_not_pile_up() -> None:
    world = World([30])
    world.begin(0)
    world.send()
    for _ in range(10):
        world.report(0)
        world.wait(5_000)
    assert world.frames() == [(0, record(30))]


# --- reports --------------------------------------------------------------------------------------------------------------


def test_every_report_counts_and_the_last_one_stays() -> None:
    world = World([30, 30])
    world.begin(0)
    world.send()
    world.link.receive_data(encode_report(30) + encode_report(60)[:3], 0)
    assert world.link.acknowledged == 30
    world.link.receive_data(encode_report(60)[3:], 0)
    assert world.link.acknowledged == 60


@pytest.mark.parametrize(
    ("position", "why"), [(61, LinkEnd.NOT_SENT), (2**63 - 1, LinkEnd.NOT_SENT), (29, LinkEnd.WENT_BACK)]
)
def test_a_report_that_no_slave_of_ours_sends(position: int, why: LinkEnd) -> None:
    world = World([30, 30, 30], settings=LinkSettings(batch_bytes=30, body_bytes_max=30, window_bytes=60))
    world.begin(0)
    world.send()
    world.report(30)
    world.report(position)
    world.report(60)
    assert world.closed() is why


def test_between_nothing_and_our_newest_file_a_slave_has_nothing_of_ours() -> None:
    world = World([600, 600, 40])
    world.report(0)
    world.report(999)
    assert world.closed() is LinkEnd.NOT_SENT


def test_reports_while_the_start_is_looked_at() -> None:
    world = World([30, 30])
    world.report(30)
    world.report(30)
    assert world.link.state is MasterLinkState.CHECKING
    world.report(60)
    assert world.closed() is LinkEnd.NOT_SENT


# --- ends -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
def test_a_slave_that_is_silent(begun: bool) -> None:
    world = World([30])
    if begun:
        world.begin(30)
    world.wait(19_999)
    world.link.take_output()
    assert world.link.due_ns == 20_000 * MS
    world.wait(1)
    assert world.closed() is LinkEnd.SILENT


def test_our_own_writing_does_not_end_the_silence() -> None:
    world = World([30])
    world.begin(0)
    for _ in range(19):
        world.wait(1_000)
        world.grow(30)
        world.send()
        world.link.take_output()
    world.wait(1_000)
    assert world.closed() is LinkEnd.SILENT


def test_files_that_were_removed_before_they_were_sent() -> None:
    world = World([600, 600])
    world.begin(600)
    world.link.log_is(LogExtent(1_000, len(world.log), FILE))
    assert world.closed() is LinkEnd.BEHIND_START


def test_a_log_that_was_cut_below_what_was_sent() -> None:
    world = World([30, 30])
    world.begin(0)
    world.send()
    world.link.log_is(LogExtent(0, 60, FILE))
    world.link.log_is(LogExtent(0, 30, FILE))
    assert world.closed() is LinkEnd.LOG_CUT


@pytest.mark.parametrize(
    "data", [bytes(30), (31).to_bytes(4, "big") + bytes(26), (-5).to_bytes(4, "big", signed=True) + bytes(26)]
)
def test_what_is_no_record_is_not_sent(data: bytes) -> None:
    world = World([30])
    world.begin(0)
    world.link.next_read(0)
    world.link.read_done(data, 0)
    assert world.closed() is LinkEnd.LOG_UNREADABLE


def test_a_large_record_that_goes_beyond_the_end_is_not_sent() -> None:
    world = World([100])
    world.begin(0)
    for _ in range(2):
        read = world.link.next_read(0)
        assert read is not None
        world.link.read_done((150).to_bytes(4, "big") + bytes(read.size - 4), 0)
    assert world.closed() is LinkEnd.LOG_UNREADABLE


def test_a_read_that_failed() -> None:
    world = World([30])
    world.begin(0)
    world.link.next_read(0)
    world.link.read_failed("the disk is gone")
    assert world.closed() is LinkEnd.LOG_UNREADABLE
    assert world.link.closed is not None
    assert "the disk is gone" in str(world.link.closed)


def test_only_the_first_reason_counts() -> None:
    world = World([30])
    world.begin(0)
    world.link.next_read(0)
    world.link.close(LinkEnd.REPLACED)
    world.link.close(LinkEnd.LOST)
    world.link.read_done(bytes(30), 0)
    world.link.receive_data(encode_report(-1), 0)
    world.link.log_is(LogExtent(0, 0, FILE))
    world.wait(100_000)
    assert world.closed() is LinkEnd.REPLACED
    assert str(world.link.closed) == "replaced"


def test_a_head_and_its_bytes_leave_as_they_are() -> None:
    world = World([30])
    world.begin(0)
    read = world.link.next_read(0)
    assert read is not None
    data = memoryview(bytes(world.log))
    world.link.read_done(data, 0)
    head, body = world.link.take_output()
    assert head == encode_transfer_head(0, 30)
    assert isinstance(body, memoryview)
    assert body.obj is data.obj


def test_whatever_the_sizes_the_whole_log_arrives() -> None:
    for batch, largest in itertools.product((8, 33, 64), (64, 150)):
        world = World(
            [9, 64, 65, 8, 400, 12, 150, 151, 30, 8, 8, 63] * 5,
            settings=LinkSettings(batch_bytes=batch, body_bytes_max=largest, window_bytes=300),
        )
        world.link._from_oldest = True
        world.report(0)
        arrived = bytearray()
        while len(arrived) < len(world.log):
            assert world.send(), (batch, largest, len(arrived))
            for position, data in world.frames():
                assert position == len(arrived)
                arrived += data
            world.report(len(arrived))
        assert arrived == world.log
