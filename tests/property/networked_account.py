"""What has to hold of every broker of a simulated network, whatever it copies or gives to copies.

Rules of this file
1. The account looks at the logs themselves, in the files of a machine that does not run, never at what links and copies say of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from tests.property.log_judgement import Broken
from tests.property.networked_broker import Machine, NetworkedBroker

from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.sysflag import TRANSACTION_MASK
from orbitmq.store.consume_queue import ConsumeQueue

M = TypeVar("M", bound=Machine[Any])


class NetworkedAccount(Generic[M]):
    def __init__(self, machines: Sequence[M]) -> None:
        self.machines = machines

    def look(self) -> None:
        """At any moment."""
        for machine in self.machines:
            process = machine.process
            if process is None:
                continue
            if process.loop.problems:
                raise Broken(f"a failure that nobody waited for: {process.loop.problems[0]}")
            if process.end_of_turn.failures or process.broker.statistics.failed_handler_count:
                raise Broken("a turn or a handler failed")
            self._look_at_confirmed(machine, process)
            if not machine.lacks_beginning:
                self._look_at_tail(process)
            self._look_at(machine)

    def _look_at(self, machine: M) -> None:
        """One that runs, in its role."""

    def _look_at_confirmed(self, machine: M, process: NetworkedBroker) -> None:
        log, end = process.store.log, process.store.confirm_offset
        if end > log.written_end:
            raise Broken(f"{end} is confirmed, the log is written up to {log.written_end}")
        seen_end = machine.seen_start + len(machine.seen)
        is_same_life = machine.seen_lifetime == machine.lifetimes
        if is_same_life and end < machine.confirmed_end:
            raise Broken(f"{machine.confirmed_end} was confirmed, and now {end} is")
        if log.written_end < seen_end:
            raise Broken(f"{machine.host}: {seen_end} was confirmed, the log ends at {log.written_end}")
        start = max(log.start, machine.seen_start)
        if is_same_life and end == machine.confirmed_end and start == machine.seen_start:
            return
        machine.confirmed_end = end
        if not is_same_life and machine.log_bytes(start, seen_end) != machine.seen[start - machine.seen_start :]:
            raise Broken(f"{machine.host}: confirmed bytes have changed")
        kept = machine.seen[start - machine.seen_start :]
        now = kept + machine.log_bytes(seen_end, max(end, seen_end)) if seen_end >= start else b""
        if not now:
            now = machine.log_bytes(start, end)
        machine.seen_start, machine.seen, machine.seen_lifetime = start, now, machine.lifetimes

    def look_closely(self) -> None:
        """Bytes and numbers of everything that is confirmed."""
        for machine in self.machines:
            process = machine.process
            if process is None:
                continue
            start = max(machine.seen_start, process.store.log.start)
            if (
                machine.log_bytes(start, machine.seen_start + len(machine.seen))
                != machine.seen[start - machine.seen_start :]
            ):
                raise Broken(f"{machine.host}: confirmed bytes have changed")
            self._look_at_queues(machine, process)

    def _look_at_queues(self, machine: M, process: NetworkedBroker) -> None:
        store = process.store
        numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
        last_ms = 0
        for entry in store.scan(store.log.start):
            if entry.physical_offset >= store.confirm_offset:
                break
            if entry.has_queue_unit:
                numbers[entry.topic, entry.queue_id].append(entry.queue_offset)
            if entry.store_timestamp < last_ms:
                raise Broken(f"{machine.host}: store time went back by {last_ms - entry.store_timestamp} ms")
            last_ms = entry.store_timestamp
        for (topic, queue_id), found in numbers.items():
            if found != list(range(found[0], found[0] + len(found))):
                raise Broken(f"{machine.host}: {topic}/{queue_id} is numbered {found}")
            if not store.is_behind and store.max_offset(topic, queue_id) != found[-1] + 1:
                shown = store.max_offset(topic, queue_id)
                raise Broken(f"{machine.host}: {topic}/{queue_id} shows {shown}, confirmed is {found[-1] + 1}")

    def _look_at_tail(self, process: NetworkedBroker) -> None:
        """What is not confirmed may be lost: no record whose place it takes may have gone."""
        for entry in process.store.confirmation.tail:
            source = entry.prepared_transaction_offset - 1
            if not entry.sys_flag & TRANSACTION_MASK and 0 <= source < process.store.log.start:
                raise Broken(f"the file of the record at {source} has gone, and what replaced it is not confirmed")

    def answered(self, process: NetworkedBroker, key: str, offset: int) -> bytes | None:
        """The record at `offset`, where a send that named `key` was told that it is, with success; None: its file has gone."""
        if offset < process.store.log.start:
            return None
        data = process.store.log.record(offset)
        if data is None:
            raise Broken(f"{key} was answered with a place at {offset}, where nothing is confirmed")
        values = decode_properties(decode_record(bytes(data)).properties)
        once = f"{values.get(Property.ONCE_EPOCH)}:{values.get(Property.ONCE_KEY)}"
        if key not in (once, values.get(Property.UNIQ_KEY)):
            raise Broken(f"{key} was answered with a place at {offset}, where {values} is")
        return bytes(data)

    # --- the end --------------------------------------------------------------------------------------------------------

    def settled(self, master: M) -> None:
        """Everything runs, and nothing is left to do: all copies are that of `master`."""
        assert master.process is not None
        ours = master.process.store
        if ours.confirm_offset != ours.log.end:
            raise Broken(f"{ours.confirm_offset} of {ours.log.end} is confirmed")
        for machine in self.machines:
            if machine is master:
                continue
            assert machine.process is not None
            theirs = machine.process.store
            begin = max(ours.log.start, theirs.log.start)
            if theirs.log.end != ours.log.end:
                raise Broken(f"{machine.host} ends at {theirs.log.end} and the master at {ours.log.end}")
            if machine.log_bytes(begin, ours.log.end) != master.log_bytes(begin, ours.log.end):
                raise Broken(f"the log of {machine.host} is not that of the master")
            known, also = next_offsets(ours.queues), next_offsets(theirs.queues)
            if known != also:
                raise Broken(f"the next offsets of {machine.host} are {also}, and the master's {known}")


def next_offsets(queues: Iterable[ConsumeQueue]) -> dict[tuple[str, int], int]:
    return {(queue.topic, queue.queue_id): queue.next_offset for queue in queues if queue.next_offset}
