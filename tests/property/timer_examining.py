"""Everything that a broker shows of its timers, held against the account.

Rules of this file
1. Asked for are promises alone: counts, pages, queues, the key index, and one entry for each message that waits.
"""

from __future__ import annotations

from collections import Counter

from tests.property.timer_account import Broken, Standing, State
from tests.property.timer_broker import ROUNDS_MAX, answers
from tests.property.timer_machine import AUDITED_MS, FAR_LATE_MS, KEYS, LATE_MS, MINUTE, TOPICS, Machine

from orbitmq.protocol.properties import Property
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.timer_bodies import (
    CountQuery,
    TimerCountsBody,
    TimerPage,
    TimerQuery,
)


class Examining(Machine):
    # --- comparing --------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let what is due leave, with nothing in its way."""
        if self.disk.is_full:
            self.fill_disk()
        self.broker.timers.paused = False
        for ms in (1_100, 1, 1_100, 1, 1_100, 1):
            self.clock.advance(ms)
            self.work()
        # What was late already when a step of time began is not any more.
        self.work(6)
        self._nothing_late()
        self.examine()

    def _nothing_late(self) -> None:
        now_ms = self.clock.now_ms()
        for standing in self.account.waiting():
            limit = FAR_LATE_MS if self.tier is not None else AUDITED_MS if self.is_damaged else LATE_MS
            if standing.due_ms < now_ms - limit:
                raise Broken(
                    f"{standing.sent.key} is {standing.state.value} and {now_ms - standing.due_ms} ms late at {standing.place}"
                )

    def finish(self) -> None:
        """Let everything fall due."""
        for _ in range(ROUNDS_MAX):
            self.settle()
            waiting = self.account.waiting()
            if not waiting:
                break
            times = sorted(standing.due_ms for standing in waiting)
            self.clock.advance(max(min(times[0] - self.clock.now_ms(), 20 * MINUTE), 1_000))
        else:
            left = [(one.sent.key, one.due_ms, one.state.value) for one in self.account.waiting()]
            raise Broken(f"never delivered: {left[:5]} at {self.clock.now_ms()}")

    def last_look(self) -> None:
        """An orderly stop, and a start that finds everything as it was."""
        self.restart()
        if self.broker.store.report.scanned_records:
            raise Broken(f"after an orderly stop {self.broker.store.report.scanned_records} records were scanned again")
        self.settle()
        self.broker.stop()
        self.here = None

    def look(self) -> None:
        self.work(1)
        if self.broker.store.writes_accepted:
            self.examine()

    def examine(self) -> None:
        """Everything that the broker shows is what the account says."""
        broker, account = self.broker, self.account
        near = account.waiting(State.NEAR)
        if broker.timers.pending_count != len(near):
            raise Broken(f"{broker.timers.pending_count} timers are pending, by the log {len(near)}")
        far = account.waiting(State.FAR)
        if broker.far.counts().pending != len(far):
            raise Broken(f"{broker.far.counts().pending} far timers are pending, by the log {len(far)}")
        levels = account.waiting(State.LEVEL)
        if broker.release.pending_count != len(levels):
            raise Broken(f"{broker.release.pending_count} delayed messages are pending, by the log {len(levels)}")
        self._entries(near)
        self._visible()
        self._found_by_key()
        self._counts(near, far)
        for _ in range(2):
            self._pages()

    def _visible(self) -> None:
        """What a consumer reads is what the log holds for it."""
        store = self.broker.store
        for (topic, queue_id), entries in self.account.visible.items():
            queue = store.queues.get(topic, queue_id)
            units = [] if queue is None else [unit[0] for unit in queue.scan(queue.min_offset, queue.max_offset)]
            wanted = [entry.position for entry in entries if entry.position >= store.log.start]
            if [position for position in units if position >= store.log.start] != wanted:
                raise Broken(f"{topic}/{queue_id} shows {units}, stored were {wanted}")
            if [entry.queue_offset for entry in entries] != list(range(len(entries))):
                raise Broken(f"the messages of {topic}/{queue_id} are not numbered in order")

    def _found_by_key(self) -> None:
        """The key index of the store names every record."""
        store = self.broker.store
        for entry in self.account.entries:
            key = entry.values.get(Property.UNIQ_KEY)
            if not key or entry.position < store.log.start:
                continue
            if entry.position not in store.query_by_key(entry.topic, key, 1_000, 0, 1 << 62):
                raise Broken(f"the record of {key} at {entry.position} in {entry.topic} is not in the key index")

    def _counts(self, near: list[Standing], far: list[Standing]) -> None:
        bucket_ms = self.rng.choice((0, MINUTE, 10 * MINUTE))
        answer = self._ask_now(RequestCode.COUNT_TIMERS, CountQuery(bucket_ms=bucket_ms).encode())
        if answer is None:
            return
        counts = TimerCountsBody.decode(bytes(answer.body))
        if (counts.near, counts.far, counts.pending) != (len(near), len(far), len(near) + len(far)):
            raise Broken(f"counted are {counts.near} + {counts.far}, by the log {len(near)} + {len(far)}")
        if Counter(counts.by_topic) != self.account.by_topic():
            raise Broken(f"counted by topic are {counts.by_topic}, by the log {self.account.by_topic()}")
        if bucket_ms and not far:
            wanted = Counter(one.due_ms // bucket_ms * bucket_ms for one in near)
            if dict(counts.buckets) != wanted:
                raise Broken(
                    f"counted in buckets of {bucket_ms} are {counts.buckets}, by the log {sorted(wanted.items())}"
                )

    def _ask_now(self, code: RequestCode, body: bytes) -> Command | None:
        """An answer to a question that changes nothing; None while the index is not whole."""
        answer, peer = self.broker.ask(code, body)
        for _ in range(ROUNDS_MAX):
            found = answers(answer, peer)
            if found is not None:
                break
            self.turn()
            self.broker.step_worker()
        else:
            raise Broken(f"{code.name} is not answered")
        self.account.watch(self.broker.store, self.clock.now_ms())
        if found.code == ResponseCode.SUCCESS:
            return found
        if found.code == ResponseCode.SYSTEM_BUSY:
            return None
        raise Broken(f"{code.name} failed: {found.code} {found.remark}")

    def _pages(self) -> None:
        rng = self.rng
        state = rng.choice((State.NEAR, State.NEAR, State.FAR)) if self.tier is not None else State.NEAR
        topic = rng.choice((None, *TOPICS))
        key = rng.choice((None, *KEYS)) if topic is not None else None
        prefix = None
        if topic is not None and key is None and rng.random() < 0.5:
            prefix = rng.choice(("k", "k1", "order-", "zz"))
        now_ms = self.clock.now_ms()
        from_ms = rng.choice((None, None, now_ms, now_ms + 5_000))
        until_ms = rng.choice((None, None, now_ms + 1_001, now_ms + MINUTE))

        def fitting() -> dict[str, list[int]]:
            """Due times of what fits, by unique key: of each copy one."""
            found: dict[str, list[int]] = {}
            for one in self.account.waiting(state):
                if topic not in (None, one.sent.topic) or one.due_ms < (from_ms or 0):
                    continue
                if until_ms is not None and one.due_ms >= until_ms:
                    continue
                if key is not None and key not in one.words():
                    continue
                if prefix is not None and not any(word.startswith(prefix) for word in one.words()):
                    continue
                found.setdefault(one.sent.key, []).append(one.due_ms)
            return found

        before, shown, cursor = fitting(), [], None
        query = TimerQuery(
            topic=topic, from_ms=from_ms, until_ms=until_ms, key=key, key_prefix=prefix, tier=state.value,
            limit=rng.choice((1, 3, 50)),
        )  # fmt: skip
        for _ in range(ROUNDS_MAX):
            query.cursor = cursor
            answer = self._ask_now(RequestCode.LIST_TIMERS, query.encode())
            if answer is None:
                return
            page = TimerPage.decode(bytes(answer.body))
            shown += page.timers
            cursor = page.cursor
            if cursor is None:
                break
        else:
            raise Broken("the pages do not end")
        after = fitting()
        names = Counter(view.message_id for view in shown)
        if prefix is None and any(
            names[name] > max(len(before.get(name, ())), len(after.get(name, ()))) for name in names
        ):
            raise Broken(f"shown twice: {names}")
        for view in shown:
            if view.message_id not in before and view.message_id not in after:
                raise Broken(f"{view.message_id} is shown by {query}, and does not fit")
            if view.deliver_ms not in before.get(view.message_id, []) + after.get(view.message_id, []):
                raise Broken(f"{view.message_id} is shown at {view.deliver_ms}, by the log {before[view.message_id]}")
        missing = {name for name in before if after.get(name) == before[name] and names[name] < len(before[name])}
        if missing:
            raise Broken(f"{sorted(missing)} are not shown by {query}, shown are {names}")
        times = [view.deliver_ms for view in shown]
        if key is None and prefix is None and times != sorted(times):
            raise Broken(f"pages are not in due order: {times}")

    def _entries(self, near: list[Standing]) -> None:
        """Every pending record stands in one part of the index, under its due time."""
        timers = self.broker.timers
        if not timers.index.is_complete:
            return
        entries: dict[int, list[int]] = {}
        for part in timers.index.parts.sources():
            for due_ms, queue_offset in part.by_due(None, 0, None):
                entries.setdefault(queue_offset, []).append(due_ms)
        for standing in near:
            queue_offset = timers._ledger.offset_of_source(standing.place)
            found = [] if queue_offset is None else entries.get(queue_offset, [])
            if found != [standing.due_ms]:
                raise Broken(f"the record of {standing.sent.key} due at {standing.due_ms} is in the index as {found}")
