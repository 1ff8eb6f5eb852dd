"""Brokers of the simulated cluster: their shells around the promoter, and around the catalog of the one that owns it.

Rules of this file
1. What the real shells have to do is done here in the plainest way; all decisions are those of the product's code.
2. A broker keeps nothing but its log over a crash, the owner also a snapshot of the catalog that is not ahead of the durable log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.far_table.storage import Account, Row, Storage, StorageError
from tests.simulation.far_table.world import Broken, Call, Durable, Machine, Program, Sleep, World

from orbitmq.protocol import far_table as wire
from orbitmq.timing.far_table import jobs, promotion, recalls, shares
from orbitmq.timing.far_table.catalog import Catalog, Decided, Rules
from orbitmq.timing.far_table.changes import Closed, Created, Released, RowName, decode_changes, encode_changes
from orbitmq.timing.far_table.promotion import Promoter, RowMark

TABLE = "t"
TOPIC = "T"


class PromotedRow:
    """A record of a broker's log."""

    __slots__ = ("mark", "row")

    def __init__(self, mark: str, row: Row) -> None:
        self.mark = mark
        self.row = row


class Broker(Machine):
    def __init__(
        self, world: World, name: str, storage: Storage, account: Account, bucket_ms: int, rules: Rules
    ) -> None:
        super().__init__(world, name)
        self.storage = storage
        self.account = account
        self.bucket_ms = bucket_ms
        self.rules = rules
        self.is_gone = False
        self.pace = world.random.choice((1, 1, 8, 30))
        """How many times longer than usual its reading takes."""
        self.has_trouble = False
        """Sometimes its log takes no rows, and files cannot be read."""
        self.start()

    def start(self) -> None:
        self.is_up = True
        self.promoter = Promoter(TABLE, self.name, "s1")
        self._is_working = False
        for record in self.log.records:
            if isinstance(record, PromotedRow):
                self.promoter.seen(RowMark.parse(record.mark))
        self.run(self._claim())

    def revive(self) -> None:
        if not self.is_up and not self.is_gone:
            self.world.tell(f"{self.name} returns")
            self.start()

    def stored_rows(self) -> list[str]:
        return [record.row.name for record in self.log.records if isinstance(record, PromotedRow)]

    # --- promotion --------------------------------------------------------------------------------------------------

    def _claim(self) -> Program:
        promoter = self.promoter
        while True:
            answer = yield Call(promoter.claim_request(is_able=not (self.has_trouble and self.world.chance(0.2))))
            pause_ms = 3_000
            if answer is not None:
                promoter.claimed(answer)
                pause_ms = min(max(answer.pause_ms, 500), self.rules.lease_ms // 3)
            promoter.try_again()
            self._work()
            yield Sleep(pause_ms * self.world.between(0.5, 1))

    def _work(self) -> None:
        if not self._is_working:
            self._is_working = True
            self.run(self._steps(self.promoter))

    def _steps(self, promoter: Promoter) -> Program:
        while (step := promoter.next_step()) is not None:
            if isinstance(step, promotion.ReadRows):
                yield Sleep(self.pace * self.world.between(1, 60))
                self._read(promoter, step)
                self.stumble()
                continue
            if isinstance(step, promotion.Begin) and self._is_unreadable():
                promoter.set_aside(step)
                continue
            if isinstance(step, promotion.Begin):
                self.stumble()
                yield Sleep(self.pace * self.world.between(1, 60))  # files are opened before a share is begun
            answer = yield Call(step.request)
            self.stumble()
            if answer is None:
                promoter.failed(step)
            elif isinstance(step, promotion.Begin):
                promoter.began(step, answer)
            elif isinstance(step, promotion.AskRecalls):
                promoter.recalls_arrived(step, answer)
            else:
                promoter.advanced(step, answer)
        self._is_working = False

    def _is_unreadable(self) -> bool:
        return not self.storage.is_reachable or (self.has_trouble and self.world.chance(0.1))

    def _read(self, promoter: Promoter, step: promotion.ReadRows) -> None:
        if self._is_unreadable():
            promoter.set_aside(step)
            return
        try:
            rows = self.storage.bucket(step.files, step.bucket_ms, self.bucket_ms)
        except StorageError as error:
            owner = self.owner
            assert isinstance(owner, Owner)
            if owner.is_begun_by(self.name, step.bucket_ms, step.first):
                raise Broken(f"{self.name} needs the removed file {error}") from error
            promoter.set_aside(step)  # given up meanwhile; the next list of shares does not have it
            return
        stop = min(step.stop, step.start + self.world.random.randint(1, 8))
        chosen = rows[step.start : stop]
        batch = promoter.rows_read(step, [(TOPIC, row.name) for row in chosen], is_end=stop >= len(rows))
        if batch is None:
            return
        position = len(self.log.records)
        for place in batch.places:
            if self.has_trouble and self.world.chance(0.02):
                promoter.not_appended(batch)
                return
            row = chosen[place]
            if row.due_ms >= self.account.latest_clock_ms + self.rules.horizon_ms + self.bucket_ms:
                raise Broken(f"{row} was promoted before its time")
            mark = RowMark(TABLE, step.bucket_ms, batch.start + place)
            position = self.log.append(PromotedRow(mark.text(), row))
            promoter.seen(mark)
        self.run(self._made_durable(promoter, batch, position))

    def _made_durable(self, promoter: Promoter, batch: promotion.Batch, position: int) -> Program:
        yield Durable(position)
        promoter.durable(batch)
        self._work()


class Owner(Broker):
    """The broker that owns the catalog, with its other role."""

    def __init__(self, *arguments: Any) -> None:
        self.snapshot = b""
        self.catalog = Catalog()
        super().__init__(*arguments)
        self.owner = self

    def start(self) -> None:
        self._recover()
        self.leases = shares.Leases(self.steady_ms())
        self._removing: set[str] = set()
        self._durable_garbage: list[str] = []
        if not self.catalog.table:
            self._decide(Decided(wire.TableAnswer(wire.TableVerdict.OK), (Created(TABLE, self.bucket_ms),)))
        super().start()
        self.run(self._tidy())

    def _recover(self) -> None:
        catalog = Catalog.from_bytes(self.snapshot) if self.snapshot else Catalog()
        for record in self.log.records:
            if isinstance(record, bytes):
                catalog.apply_record(decode_changes(record))
        self.catalog = catalog
        self.storage.check(catalog)

    def crash(self, *, power: bool) -> None:
        before = self.catalog.to_bytes()
        super().crash(power=power)
        if not power:
            self._recover()
            if self.catalog.to_bytes() != before:
                raise Broken("the catalog is no function of the log")

    def is_begun_by(self, broker: str, bucket_ms: int, first: int) -> bool:
        bucket = self.catalog.buckets.get(bucket_ms)
        share = bucket.shares.get(first) if bucket is not None else None
        return share is not None and share.is_begun and share.broker == broker

    # --- serving ----------------------------------------------------------------------------------------------------

    def _decide(self, decided: Decided) -> int:
        """The position to wait for."""
        if decided.changes:
            for change in decided.changes:
                if (
                    isinstance(change, Closed)
                    and change.bucket_ms > self.account.latest_clock_ms + self.rules.horizon_ms
                ):
                    raise Broken("a bucket was closed before its time")
                if isinstance(change, Released) and change.gives_up:
                    self._give_up(change)
            record = self.catalog.record(decided.changes)
            self.log.append(encode_changes(record))
            self.catalog.apply_record(record)
            self.world.tell(f"    {record.version}: {decided.changes}")
        return len(self.log.records)

    def _give_up(self, change: Released) -> None:
        """Rows of which nobody but the broker that is gone knows whether it stored them."""
        bucket = self.catalog.buckets[change.bucket_ms]
        share = bucket.shares[change.first]
        files = [self.catalog.files[name] for name in bucket.files]
        rows = self.storage.bucket(files, change.bucket_ms, self.bucket_ms)[share.stored : share.allowed]
        self.account.in_doubt.update(row.name for row in rows)

    def serve(self, request: Any, reply: Callable[[Any], None]) -> None:
        self.run(self._serve(request, reply))

    def _serve(self, request: Any, reply: Callable[[Any], None]) -> Program:
        if isinstance(request, wire.AddFiles):
            yield Sleep(self.world.between(1, 80))
            present = {file.name for file in request.files if file.name in self.storage.files}
            yield Sleep(self.world.between(0, 30))
            decided = jobs.add_files(self.catalog, request, self._wall_ms(), present)
        elif isinstance(request, wire.ReplaceFiles):
            yield Sleep(self.world.between(1, 80))
            present = {file.name for file in request.new_files if file.name in self.storage.files}
            yield Sleep(self.world.between(0, 30))
            decided = jobs.replace_files(self.catalog, request, self._wall_ms(), present)
        elif isinstance(request, wire.RecallRows):
            found: list[RowName] | None = None
            while found is None:
                files = recalls.files_to_search(self.catalog, request)
                found = []
                for file in files:
                    yield Sleep(self.world.between(1, 30))
                    try:
                        rows = self.storage.rows_that_count(file)
                    except StorageError:
                        found = None
                        yield Sleep(50)
                        break
                    wanted = request.message_id or request.key  # a row's key is its name
                    found += [RowName(row.due_ms, TOPIC, row.name, row.name) for row in rows if row.name == wanted]
            decided = recalls.recall_rows(self.catalog, request, found)
        else:
            decided = self._answer(request)
        yield Durable(self._decide(decided))
        reply(decided.answer)
        if decided.changes and self.world.chance(0.4):
            self.stumble()

    def _answer(self, request: Any) -> Decided:
        match request:
            case wire.OpenJob():
                return jobs.open_job(self.catalog, request, self._wall_ms(), self.rules)
            case wire.ClaimShare():
                return shares.claim_share(
                    self.catalog, self.leases, request, self._wall_ms(), self.steady_ms(), self.rules
                )
            case wire.AdvanceShare():
                return shares.advance_share(self.catalog, request, self.rules)
            case wire.BeginShare():
                return shares.begin_share(self.catalog, self.leases, request, self.rules)
            case wire.ReleaseShare():
                return shares.release_share(self.catalog, request)
            case wire.FilesQuery():
                return Decided(recalls.files_page(self.catalog, request))
            case wire.RecallsQuery():
                return Decided(recalls.recalls_page(self.catalog, request))
        return Decided(recalls.table_status(self.catalog, self._wall_ms(), self.rules, "memory:"))

    def _wall_ms(self) -> int:
        wall_ms = self.wall_ms()
        self.account.latest_clock_ms = max(self.account.latest_clock_ms, wall_ms)
        return wall_ms

    # --- beside -----------------------------------------------------------------------------------------------------

    def _tidy(self) -> Program:
        """Removes files that are garbage durably, and saves snapshots."""
        while True:
            yield Sleep(self.world.between(4_000, 15_000))
            if self.world.chance(0.3) and self.log.durable_count == len(self.log.records):
                self.snapshot = self.catalog.to_bytes()
                copy = Catalog.from_bytes(self.snapshot)
                if copy.to_bytes() != self.snapshot:
                    raise Broken("a snapshot is read as something else")
            if not self.storage.is_reachable:
                continue
            names = list(self.catalog.garbage)
            yield Durable(len(self.log.records))
            yield Sleep(self.world.between(0, 500))
            for name in names:
                self.storage.files.pop(name, None)
            self.storage.check(self.catalog)
            if changes := jobs.deleted(self.catalog, names):
                self._decide(Decided(wire.TableAnswer(wire.TableVerdict.OK), changes))
