"""Those who write to the table: jobs that schedule, compactions, people who recall, and an operator.

Rules of this file
1. A program asks again after every lost answer, with the same request. A driver that died is begun anew, with the same rows.
2. File names are used once: attempt and a number that nobody else has.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tests.simulation.far_table.brokers import TABLE, TOPIC
from tests.simulation.far_table.storage import Account, Row, Storage, StorageError
from tests.simulation.far_table.world import Broken, Call, Machine, Program, Sleep, World

from orbitmq.protocol import far_table as wire
from orbitmq.protocol.far_table import RowVerdict, TableVerdict

Asking = Generator[Any, Any, Any]


class Driver(Machine):
    """A machine that runs one job at a time."""

    def __init__(self, world: World, name: str, owner: Machine, storage: Storage, account: Account) -> None:
        super().__init__(world, name)
        self.owner = owner
        self.storage = storage
        self.account = account

    def ask(self, request: Any) -> Asking:
        while True:
            answer = yield Call(request)
            if answer is not None:
                return answer
            yield Sleep(self.world.between(10, 2_000))

    def _name(self, folder: str, job: str, attempt: int) -> str:
        return f"{folder}/{job}-{attempt}-{self.world.random.getrandbits(40):x}"

    def _write(self, folder: str, job: str, attempt: int, rows: list[Row]) -> Asking:
        """In one to three files, each of a range of due times or of any rows."""
        chosen = sorted(rows)
        if self.world.chance(0.5):
            self.world.random.shuffle(chosen)
        parts = self.world.random.randint(1, 3)
        size = -(-len(chosen) // parts) or 1
        files = []
        for at in range(0, len(chosen), size):
            yield Sleep(self.world.between(5, 4_000))
            while not self.storage.is_reachable:
                yield Sleep(500)
            files.append(self.storage.write(self._name(folder, job, attempt), chosen[at : at + size]))
        return files

    # --- scheduling -------------------------------------------------------------------------------------------------

    def schedule(self, job: str, epoch: int, rows: list[Row]) -> Program:
        while True:
            opened = yield from self.ask(wire.OpenJob(TABLE, job, epoch))
            if opened.verdict is TableVerdict.STALE_EPOCH:
                return
            near = [row for row in rows if row.due_ms < opened.split_ms]
            if opened.verdict is TableVerdict.REPEATED:
                yield from self._send_near(near)
                self._finish(rows)
                return
            far = [row for row in rows if row.due_ms >= opened.split_ms]
            is_near_first = self.world.chance(0.5)
            if is_near_first:
                yield from self._send_near(near)
            files = yield from self._write("landing", job, opened.attempt, far)
            answer = yield from self.ask(wire.AddFiles(TABLE, job, epoch, opened.attempt, files))
            if answer.verdict in (TableVerdict.OK, TableVerdict.REPEATED):
                for row in far:
                    self.account.known_at[row.name] = self.world.now_ms
                if not is_near_first:
                    yield from self._send_near(near)
                self._finish(rows)
                return
            if answer.verdict not in (
                TableVerdict.BEFORE_FRONTIER,
                TableVerdict.STALE_ATTEMPT,
                TableVerdict.STALE_EPOCH,
                TableVerdict.NOT_OPEN,
            ):
                raise Broken(f"a job's files are refused: {answer}")

    def _send_near(self, rows: list[Row]) -> Asking:
        for row in rows:
            yield Sleep(self.world.between(0, 20))
            self.account.near.add(row.name)

    def _finish(self, rows: list[Row]) -> None:
        self.account.finished.update(row.name for row in rows)

    # --- compaction -------------------------------------------------------------------------------------------------

    def compact(self, job: str, epoch: int) -> Program:
        opened = yield from self.ask(wire.OpenJob(TABLE, job, epoch))
        if opened.verdict is not TableVerdict.OK:
            return
        page = yield from self.ask(wire.FilesQuery(TABLE))
        listed = [file for file in page.files if file.until_ms is None]
        if not listed:
            return
        olds = self.world.random.sample(listed, self.world.random.randint(1, min(4, len(listed))))
        bucket_ms = opened.bucket_ms
        frontier_ms = page.frontier_ms or min(file.min_due_ms for file in olds) // bucket_ms * bucket_ms
        from_ms = frontier_ms + self.world.random.choice((-2, 0, 0, 1, 2, 4)) * bucket_ms
        recalled: set[str] = set()
        after_number = -1
        while True:
            recalls = yield from self.ask(wire.RecallsQuery(TABLE, from_ms=from_ms, after_number=after_number))
            for each in recalls.recalls:
                if each.number < opened.recalls_below or self.world.chance(0.5):
                    recalled.add(each.message_id)
            if recalls.next_after is None:
                break
            after_number = recalls.next_after
        rows: list[Row] = []
        for file in olds:
            yield Sleep(self.world.between(5, 5_000))
            try:
                whole = self.storage.rows_that_count(file)
            except StorageError:
                return  # somebody else replaced it, or the storage is away: nothing has happened
            rows += [row for row in whole if row.due_ms >= from_ms and row.name not in recalled]
        news = yield from self._write("buckets", job, opened.attempt, rows)
        names = [file.name for file in olds]
        answer = yield from self.ask(wire.ReplaceFiles(TABLE, job, epoch, opened.attempt, names, news, from_ms))
        if answer.verdict in (TableVerdict.BAD_FILE, TableVerdict.FILE_KNOWN, TableVerdict.TOO_MANY):
            raise Broken(f"a compaction is refused: {answer}")

    # --- people -----------------------------------------------------------------------------------------------------

    def recall(self, row: Row) -> Program:
        due_ms = row.due_ms if self.world.chance(0.7) else None
        asked_at = self.world.now_ms
        self.account.recall_asked.add(row.name)
        name = (row.name, None) if row.due_ms % 2 else (None, row.name)
        answer = yield from self.ask(wire.RecallRows(TABLE, TOPIC, *name, due_ms))
        for each in answer.rows:
            verdict = RowVerdict(each.verdict)
            self.account.asked_again(row.name, verdict, asked_at, self.world.now_ms)
            if verdict is not RowVerdict.NOT_FOUND or due_ms is not None:
                self.account.verdict(row.name, verdict, each.brokers, asked_at)

    def release(self, broker: Machine, *, give_up: bool) -> Program:
        """What an operator does about a broker that is away."""
        status = yield from self.ask(wire.StatusQuery())
        for share in status.shares:
            if share.broker == broker.name and share.is_begun:
                request = wire.ReleaseShare(TABLE, broker.name, share.bucket_ms, share.first, give_up)
                answer = yield from self.ask(request)
                if give_up and answer.verdict is TableVerdict.OK:
                    self.world.tell(
                        f"given up: {share.bucket_ms} from {share.first}, {answer.stored} to {answer.allowed}"
                    )
