"""What has to hold of a master and its slaves, whatever happens to them, and what their clients were promised.

Rules of this file, besides those of `networked_account`
1. What was answered with success by a synchronous master is promised. A promise ends where a person decides so: another master is made
   that does not have it although a copy has, or a copy is emptied that alone has it.
2. What a power cut may take depends on the flush mode, and nothing else is taken by anything.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.property.log_judgement import Broken
from tests.property.networked_account import NetworkedAccount
from tests.property.pair_broker import PairBroker, PairMachine

from orbitmq.replication.classic.slave_link import ReportedEnd, SlaveLinkState
from orbitmq.replication.copies import HOLDING, CopyState
from orbitmq.store.settings import FlushDiskType
from orbitmq.units import NS_PER_MS

UNSURE_MS = 25_000
"""So long a master may count a copy whose machine has lost something, or is gone: until it finds its connection silent."""


class Promise(NamedTuple):
    key: str
    offset: int
    data: bytes
    """The record."""
    is_on_copies: bool
    """Its sender waited for them."""


class Account(NetworkedAccount[PairMachine]):
    def __init__(self, machines: list[PairMachine], flush: FlushDiskType, *, removes_files: bool) -> None:
        super().__init__(machines)
        self.flush = flush
        self.removes_files = removes_files
        self.promises: dict[str, Promise] = {}
        self.forgiven = 0
        """Promises that a person's decision ended."""

    # --- promises -------------------------------------------------------------------------------------------------------

    def promised(self, machine: PairMachine, key: str, offset: int) -> None:
        """A send that named `key` was answered with success, and that its record lies at `offset`."""
        process = machine.process
        assert process is not None
        data = self.answered(process, key, offset)
        if data is None:
            return
        earlier = self.promises.get(key)
        if earlier is not None and earlier.offset != offset and self.has(machine, earlier):
            raise Broken(f"{key} was answered with a place at {earlier.offset} first and now at {offset}")
        rule = process.role.port.gate.copies.rule if process.role.port is not None else None
        needed = 0 if rule is None else rule.needed
        promise = self.promises[key] = Promise(key, offset, data, needed > 0)
        now_ns = machine.clock.monotonic_ns()
        holders = unsure = 0
        for other in self.machines:
            if other is machine:
                continue
            if self._is_safe_at(other, promise):
                holders += 1
            elif other.lost_ns >= 0 and now_ns - other.lost_ns < UNSURE_MS * NS_PER_MS:
                unsure += 1
        if holders + unsure < needed:
            raise Broken(f"{key} at {offset} was answered with success, and {holders} copies have it of {needed}")

    def _is_safe_at(self, machine: PairMachine, promise: Promise) -> bool:
        if not self.has(machine, promise):
            return False
        if machine.process is None or self.flush is FlushDiskType.ASYNC_FLUSH:
            return True
        return machine.process.store.log.synced_end >= promise.offset + len(promise.data)

    def has(self, machine: PairMachine, promise: Promise) -> bool:
        if machine.process is not None and promise.offset < machine.process.store.log.start:
            return machine.process.store.confirm_offset >= promise.offset  # its file has gone
        if machine.process is None and promise.offset < machine.first_offset:
            return True
        end = promise.offset + len(promise.data)
        return machine.log_bytes(promise.offset, end) == promise.data

    def decided(self, master: PairMachine, rightly_after: PairMachine | None = None) -> None:
        """A person has made this one master: what it does not have is lost. Rightly after another one: it had all that any slave had.
        One that had not copied all since it began with nothing lacks what was to come of files that have gone."""
        for promise in list(self.promises.values()):
            if self._lacks_words_of(master, promise):
                self._forgive(promise)
                continue
            if self.has(master, promise):
                continue
            others = [
                one.host
                for one in self.machines
                if one not in (master, rightly_after) and self.has(one, promise) and not self._left_behind(one, master)
            ]
            if rightly_after is not None and promise.is_on_copies and others:
                raise Broken(f"{promise.key} at {promise.offset} is promised and at {others}, not at the new master")
            self._forgive(promise)

    def _left_behind(self, machine: PairMachine, master: PairMachine) -> bool:
        """A machine that had lost something with its power led on, and wrote what the new master has and this one has not: somebody let it
        lead then."""
        may_lose = self.flush is FlushDiskType.ASYNC_FLUSH and any(one.lost_ns >= 0 for one in self.machines)
        return may_lose and machine.last_writer < master.last_writer

    def _lacks_words_of(self, master: PairMachine, promise: Promise) -> bool:
        process = master.process
        return process is not None and bool(process.role._lacks) and promise.offset < process.store.log.start

    def emptied(self, master: PairMachine) -> None:
        """A person has a copy made anew; only what the master has is kept."""
        self.decided(master)

    def started(self) -> None:
        """A machine runs again that may have lost something: a promise ends that nobody can keep."""
        for promise in list(self.promises.values()):
            if not any(self.has(machine, promise) for machine in self.machines):
                self._forgive(promise)

    def _forgive(self, promise: Promise) -> None:
        del self.promises[promise.key]
        self.forgiven += 1

    def disk_lost(self, machine: PairMachine) -> None:
        """After a power cut, or when a directory was emptied."""
        machine.lost_ns = machine.clock.monotonic_ns()

    # --- at any moment --------------------------------------------------------------------------------------------------

    def _look_at(self, machine: PairMachine) -> None:
        process = machine.process
        assert process is not None
        if process.role.is_slave:
            self._look_at_follower(machine, process)
        else:
            self._look_at_copies(machine, process)

    def _look_at_follower(self, machine: PairMachine, process: PairBroker) -> None:
        following = process.role.following
        if following is None or following.link.state is not SlaveLinkState.FOLLOWING:
            return
        host = following.master_address.partition(":")[0]
        leader = next((one for one in self.machines if one.host == host), None)
        if leader is None or leader.process is None or not self._is_connected(machine, leader):
            return
        port = leader.process.role.port
        if port is None or not any(one.copy and one.slave == str(machine.number + 1) for one in port.connections):
            return  # it has not been let in yet, and gets nothing
        ours, theirs = process.store.log, leader.process.store.log
        link = (machine.lifetimes, leader.host, leader.lifetimes)
        compared_end = machine.compared[1] if machine.compared[0] == link else 0
        begin, end = max(ours.start, theirs.start, compared_end), min(ours.written_end, theirs.written_end)
        if begin < end:
            if machine.log_bytes(begin, end) != leader.log_bytes(begin, end):
                raise Broken(f"{machine.host} follows {leader.host} with another log")
            machine.compared = link, end

    def _is_connected(self, slave: PairMachine, master: PairMachine) -> bool:
        process = slave.process
        return process is not None and any(
            end.loop is process.loop
            and end.peer is not None
            and end.peer.loop is (master.process and master.process.loop)
            for end in process.network.ends
        )

    def _look_at_copies(self, machine: PairMachine, process: PairBroker) -> None:
        port = process.role.port
        if port is None:
            return
        by_id = {str(one.number + 1): one for one in self.machines}
        for connection in port.connections:
            copy, slave = connection.copy, by_id.get(connection.slave)
            if copy is None or slave is None or slave.process is None or not self._is_connected(slave, machine):
                continue
            following, log = slave.process.role.following, slave.process.store.log
            if following is None or following.link.state is not SlaveLinkState.FOLLOWING:
                continue
            if copy.position > process.store.log.written_end:
                raise Broken(f"a copy is at {copy.position}, the log ends at {process.store.log.written_end}")
            has = log.synced_end if following.link._reports is ReportedEnd.SYNCED else log.written_end
            if copy.state in HOLDING and copy.position > has:
                raise Broken(f"a copy counts with {copy.position}, and has {has}")
            if copy.state is CopyState.COUNTED and log.start > 0 and not self.removes_files:
                raise Broken(f"a copy counts that lacks what lies before {log.start}")

    # --- the end --------------------------------------------------------------------------------------------------------

    def settled(self, master: PairMachine) -> None:
        for promise in self.promises.values():
            if not self.has(master, promise):
                raise Broken(f"{promise.key} at {promise.offset} was promised and is lost")
        super().settled(master)
