"""Lives of a master and two slaves in a model: links, copies and epochs as they are, logs as byte arrays, a network of byte pipes.

    python -m tests.property.lives_campaign --of replicas --lives 50000

A life is a list of steps, each an action and a number. Bytes arrive cut anywhere and in order, or never; whoever loses its connection may
notice late. Processes are killed (their logs stay as written) and power is cut (logs are cut to what was synced). After each step the
account is compared; at the end everything runs again, and all copies have to be level.

Rules of this file
1. Whatever the links are told is what a program with sockets and a disk could tell them. What a broker does around them, comparing epochs
   before it connects and copying a store anew, is done here as it would be done there.
2. The account looks at the logs themselves, never at what links and copies say of them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from orbitmq.protocol.replication.frames import TRANSFER_HEAD_BYTES
from orbitmq.replication.acknowledgements import CopyOutcome, CopyRule, one_slave_rule, quorum_rule
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.replication.classic.link_settings import LinkSettings
from orbitmq.replication.classic.log_extent import LogExtent
from orbitmq.replication.classic.master_link import MasterLink, MasterLinkState
from orbitmq.replication.classic.slave_link import ReportedEnd, SlaveLink, SlaveLinkState
from orbitmq.replication.copies import HOLDING, Copies, Copy, CopyState
from orbitmq.replication.epoch_marks import EpochMarks, decode_marks, encode_marks

FILE_BYTES: Final = 256
MS: Final = 1_000_000
TIMEOUT_MS: Final = 600
FINISH_TURNS_MAX = 2_000
"""A long life leaves slaves far behind; each turn takes them a window further."""

SETTINGS: Final = LinkSettings(
    batch_bytes=48,
    body_bytes_max=90,
    window_bytes=200,
    unappended_bytes_max=120,
    heartbeat_ms=300,
    silence_ms=1_200,
    reconnect_ms=100,
)
RULES: Final = (
    one_slave_rule(),
    one_slave_rule(refuses=True, behind_bytes_max=600),
    quorum_rule(total_replicas=3, in_sync_replicas=3, lowers=True),
    quorum_rule(total_replicas=3, in_sync_replicas=3, min_in_sync_replicas=2),
    quorum_rule(total_replicas=3, in_sync_replicas=2, waits_for_all=True),
)

Step = tuple[str, int]


class BrokenAccount(AssertionError):
    """Something that replication promises does not hold."""


class Log:
    """Records in files: `start` is the first byte that is there, `synced` what a power cut leaves."""

    def __init__(self, start: int = 0) -> None:
        self.start = self.synced = start
        self.data = bytearray(start)

    @property
    def end(self) -> int:
        return len(self.data)

    def append_record(self, size: int, number: int) -> None:
        room = FILE_BYTES - self.end % FILE_BYTES
        if room < size + 8:
            self.data += room.to_bytes(4, "big") + b"\xcb" * (room - 4)
        self.data += size.to_bytes(4, "big") + (number.to_bytes(4, "big") * size)[: size - 4]

    def append_raw(self, position: int, data: bytes) -> None:
        if position != self.end:
            raise BrokenAccount(f"bytes for {position} were given to a log that ends at {self.end}")
        self.data += data

    def cut(self, end: int) -> None:
        del self.data[end:]
        self.synced = min(self.synced, end)

    def starts_of_records(self) -> list[int]:
        found, at = [], self.start
        while at + 4 <= self.end:
            found.append(at)
            at += int.from_bytes(self.data[at : at + 4], "big")
        return found

    def whole_end(self) -> int:
        """Where the last record ends that is there whole: what recovery keeps."""
        at = self.start
        while at + 4 <= self.end and at + (size := int.from_bytes(self.data[at : at + 4], "big")) <= self.end:
            at += size
        return at


class Pipe:
    """One connection: bytes under way, and which of its ends know that it is over."""

    def __init__(self) -> None:
        self.to_master = bytearray()
        self.to_slave = bytearray()
        self.is_up = True


class Waiting(NamedTuple):
    end: int
    deadline_ns: int


class Slave:
    def __init__(self, name: str, reports: ReportedEnd, now_ns: int) -> None:
        self.name = name
        self.reports = reports
        self.log = Log()
        self.epochs = EpochMarks()
        self.link = SlaveLink(SETTINGS, reports, now_ns)
        self.pipe: Pipe | None = None
        self.received: deque[tuple[int, bytes]] = deque()
        self.is_seeding = False
        """It began with the newest file and lacks what lies before."""

    @property
    def promised_end(self) -> int:
        """Up to where its log is as its reports promise it."""
        return self.log.end if self.reports is ReportedEnd.WRITTEN else self.log.synced


class Served:
    """The master's end of a connection."""

    def __init__(self, slave: Slave, pipe: Pipe, link: MasterLink) -> None:
        self.slave = slave
        self.pipe = pipe
        self.link = link
        self.copy: Copy | None = None
        self.seeds = slave.is_seeding


class Life:
    def __init__(self, seed: int) -> None:
        chosen = random.Random(seed)
        self.rule: CopyRule = chosen.choice(RULES)
        self.is_synchronous = chosen.random() < 0.4
        self.from_oldest = chosen.random() < 0.7
        self.has_names = chosen.random() < 0.5
        reports = ReportedEnd.SYNCED if self.is_synchronous else ReportedEnd.WRITTEN
        self.now_ns = 1_000_000 * MS
        self.number = 0
        self.log = Log()
        self.epochs = EpochMarks()
        self.confirmed = 0
        self.newest_epoch = 0
        self.slaves = [Slave(name, reports, self.now_ns) for name in ("1", "2")]
        self.served: list[Served] = []
        self.waiting: list[Waiting] = []
        self.written: list[tuple[int, int]] = []
        """When the log had which end; for how long confirming may stand still."""
        self.counts: dict[CopyOutcome, int] = dict.fromkeys(CopyOutcome, 0)
        self.ends: dict[LinkEnd, int] = {}
        self._begin_master()

    # --- the master's process -----------------------------------------------------------------------------------------

    def _begin_master(self) -> None:
        self.newest_epoch += 1
        self.epochs.begin(self.newest_epoch, self.log.end)
        self.confirmed = self.local_end
        self.copies = Copies(self.rule, self.log.end, self.confirmed, self.now_ns, timeout_ms=TIMEOUT_MS)
        self.waiting.clear()
        self.written = [(self.now_ns, self.log.end)]

    def _end_master(self) -> None:
        for one in self.served:
            one.pipe.is_up = False
        self.served.clear()

    @property
    def local_end(self) -> int:
        return self.log.synced if self.is_synchronous else self.log.end

    def confirm(self) -> None:
        limit = self.copies.confirmable_end
        self.confirmed = max(self.confirmed, self.local_end if limit is None else min(limit, self.local_end))
        self.copies.log_is(self.log.end, self.confirmed, self.now_ns)
        for one in self.served:
            one.link.log_is(self._extent())

    def settle(self) -> None:
        """Tells those who wait what has become of their messages."""
        left = []
        for one in self.waiting:
            told = self.copies.outcome(one.end) if one.end <= self.local_end else None
            if told is None and self.now_ns >= one.deadline_ns:
                told = CopyOutcome.FLUSH_SLAVE_TIMEOUT
            if told is None:
                left.append(one)
            else:
                self.counts[told] += 1
                if told is CopyOutcome.COPIED:
                    self._check_copied(one.end)
        self.waiting = left

    def _extent(self) -> LogExtent:
        return LogExtent(self.log.start, self.log.end, FILE_BYTES)

    # --- steps --------------------------------------------------------------------------------------------------------

    def do_send(self, number: int) -> None:
        if self.copies.refusal is not None:
            self.counts[self.copies.refusal] += 1
            return
        self.number += 1
        self.log.append_record(9 + number % 120, self.number)
        self.written.append((self.now_ns, self.log.end))
        self.waiting.append(Waiting(self.log.end, self.now_ns + TIMEOUT_MS * MS))

    def do_sync(self, number: int) -> None:
        self.log.synced = self.log.end

    def do_wait(self, number: int) -> None:
        self.now_ns += (number % 1_000 if number % 7 == 0 else number % 40) * MS
        for one in self.served:
            one.link.tick(self.now_ns)
        for slave in self.slaves:
            slave.link.tick(self.now_ns)
        self.copies.tick(self.now_ns)

    def do_connect(self, number: int) -> None:
        slave = self.slaves[number % 2]
        slave.link.tick(self.now_ns)
        if slave.link.state is not SlaveLinkState.CONNECTING:
            return
        slave.received.clear()
        if not self._may_follow(slave):
            slave.link.failed(LinkEnd.REFUSED, self.now_ns)
            return
        slave.log.cut(slave.log.whole_end())
        if slave.reports is ReportedEnd.SYNCED:
            slave.log.synced = slave.log.end
        if slave.log.end == slave.log.start:
            slave.log, slave.is_seeding = Log(), not self.from_oldest
        if not self._is_left_to_link(slave.log.end):  # it may have another log, and then these are not its epochs
            slave.epochs = decode_marks(encode_marks(self.epochs))  # what a slave has of the log comes with its epochs
        slave.pipe = pipe = Pipe()
        slave.link.connected(slave.log.end, self.now_ns)
        for other in self.served:
            if self.has_names and other.slave is slave:
                other.link.close(LinkEnd.REPLACED)
        link = MasterLink(SETTINGS, self._extent(), self.now_ns, from_oldest=self.from_oldest)
        self.served.append(Served(slave, pipe, link))
        if not self.has_names:
            link.receive_data(slave.link.take_output(), self.now_ns)
            link.start_checked(link.asked in self.log.starts_of_records(), self.now_ns)

    def _may_follow(self, slave: Slave) -> bool:
        """By the epochs of both, before anything is sent. A slave without a name has no epochs to show; where that can be seen at its
        position, it is left to the link, which sees it at once: later, when more has been written, nobody could."""
        end = slave.log.whole_end()
        if end == slave.log.start:
            return True
        if self._is_left_to_link(end):
            return True
        shared = self.epochs.shared(self.log.end, slave.epochs, end)
        if shared.is_known and shared.end >= end >= self.log.start:
            return True
        self._empty(slave)
        return False

    def _is_left_to_link(self, end: int) -> bool:
        """A slave without a name that has to be refused for where it ends."""
        return not self.has_names and (end > self.log.end or end not in [*self.log.starts_of_records(), self.log.end])

    def _empty(self, slave: Slave) -> None:
        """As an operator does it whose slave was refused: it will be copied anew."""
        slave.log, slave.epochs, slave.is_seeding = Log(), EpochMarks(), False
        slave.received.clear()

    def do_pump(self, number: int) -> None:
        """The master reads, and gives the network what it has to write."""
        for one in self.served:
            if one.link.state is MasterLinkState.CHECKING:
                one.link.start_checked(one.link.asked in self.log.starts_of_records(), self.now_ns)
            for _ in range(number % 4):
                read = one.link.next_read(self.now_ns)
                if read is None:
                    break
                one.link.read_done(bytes(self.log.data[read.position : read.position + read.size]), self.now_ns)
            self._check_transfers(one)
            one.pipe.to_slave += b"".join(one.link.take_output())

    def do_carry_out(self, number: int) -> None:
        """Some bytes from the master arrive at a slave."""
        slave = self.slaves[number % 2]
        pipe = slave.pipe
        if pipe is None or not slave.link.wants_data:
            return
        size = number // 2 % 197
        data = bytes(pipe.to_slave[:size])
        del pipe.to_slave[:size]
        slave.received += ((position, bytes(piece)) for position, piece in slave.link.receive_data(data, self.now_ns))

    def do_carry_in(self, number: int) -> None:
        """Some bytes from a slave arrive at the master."""
        slave = self.slaves[number % 2]
        for one in self.served:
            if one.slave is slave:
                size = number // 2 % 39
                data = bytes(one.pipe.to_master[:size])
                del one.pipe.to_master[:size]
                one.link.receive_data(data, self.now_ns)
                self._note_reports(one)

    def _note_reports(self, one: Served) -> None:
        acknowledged = one.link.acknowledged
        if acknowledged is None:
            return
        if one.copy is None:
            name = one.slave.name if self.has_names else f"{one.slave.name}:{id(one)}"
            one.copy = self.copies.connected(
                name, acknowledged, self.now_ns, counts_as=one.slave.name, seeding=one.seeds
            )
        else:
            self.copies.reported(one.copy, acknowledged, self.now_ns)

    def do_append(self, number: int) -> None:
        """A slave writes some of what it received, and tells its link."""
        slave = self.slaves[number % 2]
        left = 1 + number // 2 % 150
        while slave.received and left:
            position, data = slave.received.popleft()
            if not slave.log.end and position:
                slave.log = Log(position)
            slave.log.append_raw(position, data[:left])
            if len(data) > left:
                slave.received.appendleft((position + left, data[left:]))
            left -= min(left, len(data))
        self._tell(slave)

    def do_sync_slave(self, number: int) -> None:
        slave = self.slaves[number % 2]
        slave.log.synced = slave.log.end
        self._tell(slave)

    def _tell(self, slave: Slave) -> None:
        slave.link.appended(slave.log.end, slave.log.synced, self.now_ns)
        if slave.pipe is not None:
            slave.pipe.to_master += slave.link.take_output()

    def do_seeded(self, number: int) -> None:
        """What a slave lacked before its start has been copied to it."""
        slave = self.slaves[number % 2]
        if slave.is_seeding and slave.link.received_end is not None and slave.pipe is not None and slave.pipe.is_up:
            begin = slave.log.start if slave.log.end else slave.link.received_end - slave.link.unappended_bytes
            slave.log.data[:begin] = self.log.data[:begin]
            slave.log.start, slave.log.synced, slave.is_seeding = 0, slave.log.end, False
            self._tell(slave)
            for one in self.served:
                if one.pipe is slave.pipe:
                    one.seeds = False
                    if one.copy is not None:
                        self.copies.seeded(one.copy, self.now_ns)

    def do_disconnect(self, number: int) -> None:
        """A connection breaks. Its ends notice at once, or when they are silent for too long."""
        slave = self.slaves[number % 2]
        if slave.pipe is None:
            return
        pipe, slave.pipe = slave.pipe, None
        pipe.is_up = False
        slave.link.failed(LinkEnd.LOST, self.now_ns)
        if number // 2 % 2:
            for one in self.served:
                if one.pipe is pipe:
                    one.link.close(LinkEnd.LOST)

    def do_kill_slave(self, number: int) -> None:
        slave = self.slaves[number % 2]
        if slave.pipe is not None:
            slave.pipe.is_up = False
        if number // 2 % 2:
            slave.log.cut(max(slave.log.synced, slave.log.start))
        slave.received.clear()
        slave.pipe = None
        slave.link = SlaveLink(SETTINGS, slave.reports, self.now_ns)

    def do_kill_master(self, number: int) -> None:
        """The master dies and starts again. After a power cut it has lost what was not synced."""
        self._end_master()
        if number % 4:
            self.log.cut(self.log.synced)
            self.log.cut(self.log.whole_end())
            self.epochs.cut(self.log.end)
        self._begin_master()

    def do_lose_tail(self, number: int) -> None:
        """Everybody has what was sent last; power is cut at one of them, and everybody meets again, after more was sent perhaps."""
        for _ in range(2):
            self.do_send(number)
            self._exchange()
        if number % 3:
            self.do_kill_master(1)
        else:
            self.do_kill_slave(2 + number // 3 % 2)
        self.do_wait(105)
        for more in range(number // 6 % 4):
            self.do_send(number // 24 + more)
        for slave in (0, 1):
            self.do_connect(slave)
        self._exchange()

    def _exchange(self) -> None:
        self._look()
        for slave in (0, 1):
            self.do_carry_in(slave + 2 * 38)
            self.do_pump(3)
            self.do_carry_out(slave + 2 * 196)
            self.do_append(slave + 2 * 149)
            self.do_carry_in(slave + 2 * 38)
        self._look()

    def do_remove_file(self, number: int) -> None:
        """The oldest file of the master is removed, where what is left is more than one."""
        following = self.log.start - self.log.start % FILE_BYTES + FILE_BYTES
        if self.from_oldest and following < min(self.confirmed, self.log.synced) - FILE_BYTES:
            self.log.start = following

    def step(self, action: str, number: int) -> None:
        getattr(self, f"do_{action}")(number)
        self._look()

    def _look(self) -> None:
        """What every program around the links does after whatever happened."""
        for slave in self.slaves:
            if slave.link.state is not SlaveLinkState.FOLLOWING and slave.pipe is not None:
                slave.pipe.is_up = False
                slave.pipe = None
            if slave.pipe is not None:
                slave.pipe.to_master += slave.link.take_output()
        for one in list(self.served):
            self._note_reports(one)
            if one.link.closed is not None:
                self.ends[one.link.closed.why] = self.ends.get(one.link.closed.why, 0) + 1
                if one.slave.pipe is one.pipe:
                    one.slave.link.failed(LinkEnd.LOST, self.now_ns)
                    one.slave.pipe = None
                    if one.link.closed.why in (LinkEnd.BEYOND_END, LinkEnd.BEHIND_START, LinkEnd.INSIDE_RECORD):
                        self._empty(one.slave)
                self.served.remove(one)
                if one.copy is not None:
                    self.copies.gone(one.copy)
        self.confirm()
        self.settle()
        self._check()

    # --- the account --------------------------------------------------------------------------------------------------

    def _has_all(self, slave: Slave, end: int) -> bool:
        """The slave's log is ours up to `end`, and as safe as its reports promise."""
        begin = 0 if not self.from_oldest else max(slave.log.start, self.log.start)
        return (
            slave.promised_end >= end
            and slave.log.start <= begin
            and slave.log.data[begin:end] == self.log.data[begin:end]
        )

    def _check_copied(self, end: int) -> None:
        """Of those who count, a slave that was killed a moment ago may have lost what it had: its process is not asked."""
        asked = [one.slave for one in self.served if one.copy is not None and one.copy.state in HOLDING]
        sure = [slave for slave in asked if slave.pipe is not None]
        needed = self.rule.needed_with(len(asked)) - (len(asked) - len(sure))
        if (
            sum(self._has_all(slave, end) for slave in sure) < min(needed, len(sure))
            or len(asked) < self.rule.needed_min
        ):
            raise BrokenAccount(f"a message that ends at {end} was told to be on copies, and is not")

    def _check(self) -> None:
        for one in self.served:
            is_sure = one.slave.pipe is one.pipe
            acknowledged = one.link.acknowledged
            if acknowledged is not None:
                begin, end = one.slave.log.start, one.slave.log.end
                if is_sure and one.slave.log.data[begin:end] != self.log.data[begin:end]:
                    raise BrokenAccount(f"slave {one.slave.name} follows with another log")
                if acknowledged > self.log.end:
                    raise BrokenAccount(f"{acknowledged} is acknowledged, the log ends at {self.log.end}")
                if is_sure and acknowledged > one.slave.promised_end:
                    raise BrokenAccount(f"{acknowledged} is acknowledged, the slave has {one.slave.promised_end}")
            if one.copy is not None and one.copy.state in HOLDING and is_sure:
                if one.copy.position > one.slave.promised_end:
                    raise BrokenAccount(
                        f"a copy counts with {one.copy.position}, the slave has {one.slave.promised_end}"
                    )
                if one.slave.is_seeding:
                    raise BrokenAccount("a copy counts that lacks the beginning")
        if self.confirmed > self.local_end:
            raise BrokenAccount(f"{self.confirmed} is confirmed, the log is safe up to {self.local_end}")
        if not self.rule.refuses:
            late = max((end for at, end in self.written if at <= self.now_ns - 2 * TIMEOUT_MS * MS), default=0)
            if self.confirmed < min(late, self.local_end):
                raise BrokenAccount(f"{late} was written long ago, and {self.confirmed} is confirmed")

    def _check_transfers(self, one: Served) -> None:
        parts = one.link._output  # heads and bodies as they leave
        for part in parts:
            if len(part) == TRANSFER_HEAD_BYTES and isinstance(part, bytes):
                position, size = int.from_bytes(part[:8], "big"), int.from_bytes(part[8:], "big")
                if size and position // FILE_BYTES != (position + size - 1) // FILE_BYTES:
                    raise BrokenAccount(f"{size} bytes from {position} cross the end of a file")
                if size > SETTINGS.body_bytes_max:
                    raise BrokenAccount(f"a transfer of {size} bytes")
        sent_end, acknowledged = one.link.sent_end, max(one.link.acknowledged or 0, one.link._start)
        if one.link.closed is None and sent_end - acknowledged > SETTINGS.window_bytes:
            begin = max((at for at in self.log.starts_of_records() if at < sent_end), default=None)
            if begin is None:
                return  # its file has gone, and the link hears of that next
            size = int.from_bytes(self.log.data[begin : begin + 4], "big")
            if size <= SETTINGS.body_bytes_max or begin - acknowledged >= SETTINGS.window_bytes:
                raise BrokenAccount(
                    "more is sent and not acknowledged than a window, and the rest of a record that goes in parts"
                )

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Everything runs, and nothing breaks any more: every copy becomes level and counts, and a message is copied."""
        for turn in range(FINISH_TURNS_MAX):
            if turn >= 90 and all(slave.log.end == self.log.end for slave in self.slaves):
                break
            if turn in (0, 30, 60) and self.copies.refusal is None:
                self.do_send(50)
            self.do_sync(0)
            self.do_wait(37)
            for number in (0, 1):
                for action in (
                    "connect",
                    "pump",
                    "carry_in",
                    "carry_out",
                    "append",
                    "sync_slave",
                    "carry_in",
                    "seeded",
                ):
                    getattr(self, f"do_{action}")(number + 2 * 148)
            self.do_pump(3)
            self._look()
        for slave in self.slaves:
            if slave.log.end != self.log.end or not self._has_all(slave, self.log.end):
                raise BrokenAccount(f"slave {slave.name} ends at {slave.log.end} and not level at {self.log.end}")
        if {copy.counts_as for copy in self.copies if copy.state is CopyState.COUNTED} != {"1", "2"}:
            raise BrokenAccount(f"copies do not count: {list(self.copies)}")
        if self.waiting or self.confirmed != self.log.end:
            raise BrokenAccount(f"{len(self.waiting)} senders wait, {self.confirmed} of {self.log.end} is confirmed")


USUAL: Final = (
    "send", "send", "pump", "pump", "carry_out", "carry_out", "carry_in", "append", "append", "sync_slave", "sync", "wait",
    "connect", "seeded",
)  # fmt: skip
RARE: Final = ("disconnect", "kill_slave", "kill_master", "lose_tail", "remove_file")
ACTIONS: Final = tuple(dict.fromkeys((*USUAL, *RARE)))


def steps_of(seed: int, count: int) -> Iterator[Step]:
    chosen = random.Random(~seed)
    for _ in range(count):
        yield chosen.choice(RARE if chosen.random() < 0.06 else USUAL), chosen.randrange(1 << 16)


def live(seed: int, steps: Iterable[Step]) -> Life:
    life = Life(seed)
    for action, number in (("connect", 0), ("connect", 1), *steps):
        life.step(action, number)
    life.finish()
    return life


def run(seed: int, length: int = 1) -> Life:
    """A life of some hundred steps from a seed; BrokenAccount where something is not as promised."""
    return live(seed, steps_of(seed, 300 * length))
