"""The catalog of the far table: who may add, replace, claim, begin, recall, and what then is so."""

from __future__ import annotations

import zlib

import pytest

from orbitmq.errors import RecordError, StoreDamagedError
from orbitmq.limits.far import FAR_TABLE_AHEAD_MAX
from orbitmq.protocol import far_table as wire
from orbitmq.protocol.far_table import RowVerdict, TableFile, TableVerdict
from orbitmq.timing.far_table import catalog as catalog_module
from orbitmq.timing.far_table import jobs, recalls, shares
from orbitmq.timing.far_table.catalog import Catalog, Decided, Rules
from orbitmq.timing.far_table.changes import Created, RowName, decode_changes, encode_changes

HOUR = 3_600_000
RULES = Rules(horizon_ms=6 * HOUR, margin_ms=HOUR, lease_ms=60_000, grant_rows=100)


class Table:
    """A catalog with its leases, driven by hand; every change goes through its record."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.leases = shares.Leases(0)
        self.now_ms = 0
        self.steady_ms = 0
        self.records: list[bytes] = []
        self.decided(Decided(wire.TableAnswer(TableVerdict.OK), (Created("t", HOUR),)))

    def decided(self, decided: Decided):
        if decided.changes:
            self.records.append(encode_changes(self.catalog.record(decided.changes)))
            self.catalog.apply_record(decode_changes(self.records[-1]))
            assert decided.answer.version in (0, self.catalog.version)
        return decided.answer

    def open(self, job: str, epoch: int = 1):
        return self.decided(jobs.open_job(self.catalog, wire.OpenJob("t", job, epoch), self.now_ms, RULES))

    def add(self, job: str, attempt: int, *files: TableFile, epoch: int = 1, present: bool = True):
        names = {file.name for file in files} if present else set()
        request = wire.AddFiles("t", job, epoch, attempt, list(files))
        return self.decided(jobs.add_files(self.catalog, request, self.now_ms, names))

    def added(self, *files: TableFile) -> None:
        job = f"job of {files[0].name}"
        assert self.add(job, self.open(job).attempt, *files).verdict is TableVerdict.OK

    def replace(self, job: str, olds: list[str], *news: TableFile, from_ms: int):
        request = wire.ReplaceFiles("t", job, 1, self.catalog.jobs[job].attempt, olds, list(news), from_ms)
        return self.decided(jobs.replace_files(self.catalog, request, self.now_ms, {file.name for file in news}))

    def claim(self, broker: str, *, store: str = "s", wants: bool = True, keeps: bool = True):
        request = wire.ClaimShare("t", broker, store, wants, keeps)
        return self.decided(shares.claim_share(self.catalog, self.leases, request, self.now_ms, self.steady_ms, RULES))

    def begin(self, broker: str, view: wire.ShareView):
        request = wire.BeginShare("t", broker, "s", view.bucket_ms, view.first, view.epoch)
        return self.decided(shares.begin_share(self.catalog, self.leases, request, RULES))

    def advance(self, broker: str, view: wire.ShareView, stored: int, *, done: bool = False):
        request = wire.AdvanceShare("t", broker, "s", view.bucket_ms, view.first, view.epoch, stored, done)
        return self.decided(shares.advance_share(self.catalog, request, RULES))

    def release(self, broker: str, view: wire.ShareView, *, give_up: bool = False):
        request = wire.ReleaseShare("t", broker, view.bucket_ms, view.first, give_up)
        return self.decided(shares.release_share(self.catalog, request))

    def recall(self, *rows: RowName, message_id: str | None = "m", key: str | None = None, due_ms: int | None = None):
        request = wire.RecallRows("t", "T", message_id if key is None else None, key, due_ms)
        return self.decided(recalls.recall_rows(self.catalog, request, rows)).rows


def file(name: str, first_hour: float, last_hour: float, rows: int = 10) -> TableFile:
    return TableFile(name, rows, 1_000, int(first_hour * HOUR), int(last_hour * HOUR))


@pytest.fixture
def table() -> Table:
    return Table()


class TestJobs:
    def test_split_reaches_a_margin_behind_the_horizon(self, table):
        opened = table.open("job")
        assert (opened.verdict, opened.attempt, opened.split_ms) == (TableVerdict.OK, 1, 7 * HOUR)

    def test_a_repeated_addition_has_one_effect(self, table):
        table.open("job")
        assert table.add("job", 1, file("a", 8, 20)).verdict is TableVerdict.OK
        assert table.add("job", 1, file("a", 8, 20)).verdict is TableVerdict.REPEATED
        again = table.open("job")
        assert (again.verdict, again.attempt, again.split_ms) == (TableVerdict.REPEATED, 1, 7 * HOUR)
        assert list(table.catalog.files) == ["a"]

    def test_opening_again_voids_what_was_sent_before(self, table):
        table.open("job")
        table.open("job")
        assert table.add("job", 1, file("a", 8, 20)).verdict is TableVerdict.STALE_ATTEMPT
        assert table.add("job", 2, file("b", 8, 20)).verdict is TableVerdict.OK
        late = table.add("job", 1, file("a", 8, 20))
        assert (late.verdict, table.catalog.jobs["job"].attempt) == (TableVerdict.STALE_ATTEMPT, 2)

    def test_an_epoch_is_over_when_a_higher_one_is_opened(self, table):
        table.open("job", 1)
        table.open("job", 2)
        assert table.add("job", 1, file("a", 8, 20)).verdict is TableVerdict.STALE_EPOCH
        assert table.open("job", 1).verdict is TableVerdict.STALE_EPOCH
        assert table.add("job", 2, epoch=3).verdict is TableVerdict.NOT_OPEN

    def test_the_split_does_not_fall_when_the_clock_is_set_back(self, table):
        table.now_ms = 3 * HOUR
        assert table.open("job").split_ms == 10 * HOUR
        table.now_ms = 0
        assert table.open("job").split_ms == 10 * HOUR
        assert table.open("job", 2).split_ms == 7 * HOUR

    def test_rows_of_closed_buckets_are_refused_and_the_next_split_is_behind_them(self, table):
        table.added(file("a", 8, 20))
        table.open("job")
        table.now_ms = 4 * HOUR
        table.claim("x")
        refused = table.add("job", 1, file("b", 7.5, 9), file("c", 9, 10))
        assert (refused.verdict, refused.names, refused.frontier_ms) == (TableVerdict.BEFORE_FRONTIER, ["b"], 9 * HOUR)
        assert table.open("job").split_ms >= refused.frontier_ms

    def test_rows_before_the_split_belong_to_the_brokers(self, table):
        table.open("job")
        assert table.add("job", 1, file("a", 6.5, 9)).verdict is TableVerdict.BAD_FILE

    def test_a_job_without_far_rows_is_finished_as_well(self, table):
        table.open("job")
        assert table.add("job", 1).verdict is TableVerdict.OK
        assert table.open("job").verdict is TableVerdict.REPEATED

    def test_names_are_used_once_and_files_are_there(self, table):
        table.added(file("a", 8, 20))
        table.open("job")
        assert table.add("job", 1, file("a", 8, 20)).verdict is TableVerdict.FILE_KNOWN
        assert table.add("job", 1, file("b", 8, 20), present=False).names == ["b"]
        assert table.add("job", 1, file("b", 9, 8)).verdict is TableVerdict.BAD_FILE

    def test_what_is_remembered_of_jobs_is_bounded(self, table, monkeypatch):
        monkeypatch.setattr(jobs, "FAR_TABLE_JOBS_MAX", 2)
        table.open("one")
        table.open("two")
        assert table.open("three").verdict is TableVerdict.TOO_MANY
        table.now_ms = jobs.FAR_TABLE_JOB_MEMORY_MS
        assert table.open("three").verdict is TableVerdict.OK
        assert list(table.catalog.jobs) == ["two", "three"]


class TestShares:
    def test_buckets_close_in_order_when_they_come_within_the_horizon(self, table):
        table.added(file("a", 8, 9.5))
        assert table.claim("x").shares == []
        table.now_ms = 2 * HOUR
        (view,) = table.claim("x").shares
        assert (view.bucket_ms, view.first, [each.name for each in view.files]) == (8 * HOUR, 0, ["a"])
        assert table.catalog.frontier_ms == 9 * HOUR

    def test_a_claim_says_all_shares_of_its_broker(self, table):
        table.added(file("a", 8, 9.5))
        table.now_ms = 5 * HOUR
        table.claim("x")
        assert [view.bucket_ms for view in table.claim("x").shares] == [8 * HOUR, 9 * HOUR]
        assert table.claim("x", store="another").shares == []

    def test_a_lease_frees_what_was_not_begun(self, table):
        table.added(file("a", 8, 8.5))
        table.now_ms = 3 * HOUR
        (view,) = table.claim("x").shares
        assert table.claim("y").shares == []
        table.steady_ms = RULES.lease_ms + 1
        (taken,) = table.claim("y").shares
        assert taken.epoch > view.epoch
        assert table.begin("x", view).verdict is TableVerdict.NOT_YOURS
        assert table.begin("y", taken).verdict is TableVerdict.OK
        assert table.begin("y", taken).verdict is TableVerdict.REPEATED

    def test_a_clock_that_is_set_frees_nothing(self, table):
        table.added(file("a", 8, 8.5))
        table.now_ms = 3 * HOUR
        table.claim("x")
        table.now_ms = 300 * HOUR
        assert table.claim("y").shares == []

    def test_a_begun_share_stays_with_its_broker(self, table):
        table.added(file("a", 8, 8.5))
        table.now_ms = 3 * HOUR
        (view,) = table.claim("x").shares
        table.begin("x", view)
        table.steady_ms = 1_000 * RULES.lease_ms
        assert table.claim("y").shares == []
        assert [view.is_begun for view in table.claim("x", wants=False, keeps=False).shares] == [True]

    def test_rows_are_allowed_as_others_are_reported(self, table):
        table.added(file("a", 8, 8.5))
        table.now_ms = 3 * HOUR
        (view,) = table.claim("x").shares
        assert table.begin("x", view).allowed == 100
        assert table.advance("x", view, 60).allowed == 160
        assert table.advance("x", view, 60).verdict is TableVerdict.REPEATED
        assert table.advance("x", view, 161).verdict is TableVerdict.NOT_YOURS
        assert table.advance("x", view, 70, done=True).verdict is TableVerdict.OK
        assert table.advance("x", view, 70, done=True).verdict is TableVerdict.GONE

    def test_an_operator_hands_on_what_a_broker_cannot_have_stored(self, table):
        table.added(file("a", 8, 8.5))
        table.now_ms = 3 * HOUR
        (view,) = table.claim("x").shares
        table.begin("x", view)
        table.advance("x", view, 60)
        released = table.release("x", view)
        assert (released.stored, released.allowed) == (60, 160)
        assert table.release("x", view).verdict is TableVerdict.REPEATED
        assert [each.first for each in table.claim("x").shares] == [0], "not a second one of the same bucket"
        (rest,) = table.claim("y").shares
        assert (rest.first, rest.end) == (160, None)
        table.begin("y", rest)
        table.advance("y", rest, 200, done=True)
        assert list(table.catalog.files) == ["a"], "the rows before are waited for"
        assert table.advance("x", view, 160).verdict is TableVerdict.OK
        assert table.catalog.finished == {8 * HOUR: ["x", "y"]}
        assert list(table.catalog.garbage) == ["a"]

    def test_a_broker_that_never_returns_is_given_up(self, table):
        table.added(file("a", 8, 8.5))
        table.now_ms = 3 * HOUR
        (view,) = table.claim("x").shares
        assert table.release("x", view).verdict is TableVerdict.NOT_YOURS
        table.begin("x", view)
        table.release("x", view, give_up=True)
        (rest,) = table.claim("y").shares
        assert rest.first == 100
        table.begin("y", rest)
        table.advance("y", rest, 100, done=True)
        assert table.catalog.buckets == {}

    def test_brokers_that_ask_get_about_as_many(self, table):
        table.added(file("a", 8, 20))
        table.now_ms = 20 * HOUR
        table.claim("y")
        for _ in range(2 * FAR_TABLE_AHEAD_MAX):
            table.claim("x")
        assert len(table.claim("x", wants=False).shares) == FAR_TABLE_AHEAD_MAX
        table.steady_ms = RULES.lease_ms + 1
        assert len(table.claim("x").shares) == 1 + FAR_TABLE_AHEAD_MAX, "who asks no more is not waited for"


class TestReplacing:
    def test_new_files_count_from_their_time(self, table):
        table.added(file("a", 8, 20))
        table.open("compaction")
        assert table.replace("compaction", ["a"], file("b", 10, 20), from_ms=10 * HOUR).verdict is TableVerdict.OK
        assert table.catalog.files["a"].until_ms == table.catalog.files["b"].from_ms == 10 * HOUR
        table.now_ms = 5 * HOUR
        assert [[each.name for each in view.files] for view in table.claim("x").shares] == [["a"]]
        table.open("another")
        again = table.replace("another", ["a"], file("c", 9, 20), from_ms=9 * HOUR)
        assert (again.verdict, again.names) == (TableVerdict.FILE_GONE, ["a"])

    def test_a_bucket_closed_meanwhile_keeps_the_old_file(self, table):
        table.added(file("a", 8, 20))
        table.open("compaction")
        table.now_ms = 3 * HOUR
        (view,) = table.claim("x").shares
        assert table.replace("compaction", ["a"], file("b", 8, 20), from_ms=8 * HOUR).verdict is TableVerdict.OK
        assert [(each.name, each.until_ms) for each in table.claim("x", wants=False).shares[0].files] == [
            ("a", 9 * HOUR)
        ]
        assert table.catalog.files["b"].from_ms == 9 * HOUR
        table.begin("x", view)
        assert list(table.catalog.garbage) == []
        table.advance("x", view, 1, done=True)
        assert list(table.catalog.garbage) == ["a"]
        assert jobs.deleted(table.catalog, ["a", "b"])[0].names == ["a"]

    def test_only_starts_of_buckets_and_rows_that_were_there(self, table):
        table.added(file("a", 8, 20))
        table.open("c")
        assert table.replace("c", ["a"], file("b", 8, 20), from_ms=HOUR + 1).verdict is TableVerdict.BAD_FILE
        assert table.replace("c", ["a"], file("b", 8, 21), from_ms=HOUR).names == ["b"]
        assert table.replace("c", ["a", "a"], from_ms=HOUR).verdict is TableVerdict.FILE_GONE
        assert table.replace("c", ["a"], from_ms=HOUR).verdict is TableVerdict.OK
        assert table.replace("c", ["a"], from_ms=HOUR).verdict is TableVerdict.REPEATED
        assert list(table.catalog.garbage) == ["a"]


class TestRecalls:
    ROW = RowName(int(8.2 * HOUR), "T", "m")

    def verdicts(self, rows):
        return [(row.verdict, row.brokers) for row in rows]

    def test_until_the_bucket_is_begun(self, table):
        table.added(file("a", 8, 8.5))
        table.now_ms = 3 * HOUR
        (view,) = table.claim("x").shares
        assert self.verdicts(table.recall(self.ROW)) == [(RowVerdict.RECALLED, [])]
        assert self.verdicts(table.recall(self.ROW)) == [(RowVerdict.ALREADY_RECALLED, [])]
        assert table.begin("x", view).recall_count == 1
        query = wire.RecallsQuery("t", bucket_ms=view.bucket_ms)
        assert [each.message_id for each in recalls.recalls_page(table.catalog, query).recalls] == ["m"]
        other = RowName(self.ROW.due_ms, "T", "other")
        assert self.verdicts(table.recall(other, message_id="other")) == [(RowVerdict.HANDED_OVER, ["x"])]
        nobody = table.recall(message_id="nobody", due_ms=other.due_ms)
        assert self.verdicts(nobody) == [(RowVerdict.NOT_FOUND, [])], "its files were read, and do not have it"
        table.advance("x", view, 10, done=True)
        assert recalls.recalls_page(table.catalog, query).verdict is TableVerdict.GONE
        assert self.verdicts(table.recall(message_id="other", due_ms=other.due_ms)) == [(RowVerdict.HANDED_OVER, ["x"])]

    def test_who_asks_again_hears_the_same_after_the_row_is_gone(self, table):
        table.added(file("a", 8, 8.5))
        table.recall(self.ROW)
        table.open("c")
        table.replace("c", ["a"], file("b", 8, 8.5), from_ms=8 * HOUR)
        assert table.catalog.recall_count == 0
        assert self.verdicts(table.recall(message_id="m")) == [(RowVerdict.ALREADY_RECALLED, [])]
        assert self.verdicts(table.recall(message_id="nobody")) == [(RowVerdict.NOT_FOUND, [])]

    def test_who_asks_again_by_key_hears_the_same_as_long_as_it_is_remembered(self, table, monkeypatch):
        monkeypatch.setattr(catalog_module, "FAR_TABLE_PAST_RECALLS_MAX", 2)
        table.added(file("a", 8, 9.5))
        rows = [RowName(int(8.2 * HOUR), "T", "m", "contract-1 old"), RowName(9 * HOUR, "T", "n", "contract-1")]
        assert self.verdicts(table.recall(*rows, key="contract-1")) == [(RowVerdict.RECALLED, [])] * 2
        table.open("c")
        table.replace("c", ["a"], file("b", 8, 9.5), from_ms=8 * HOUR)
        assert table.catalog.recall_count == 0
        for _ in range(2):
            again = table.recall(key="contract-1")
            assert [(row.verdict, row.message_id, row.keys) for row in again] == [
                (RowVerdict.ALREADY_RECALLED, "m", "contract-1 old"),
                (RowVerdict.ALREADY_RECALLED, "n", "contract-1"),
            ]
            table.catalog = Catalog.from_bytes(table.catalog.to_bytes())
        assert [row.message_id for row in table.recall(key="contract-1", due_ms=9 * HOUR)] == ["n"]
        assert [row.message_id for row in table.recall(key="old")] == ["m"]
        assert self.verdicts(table.recall(key="contract")) == [(RowVerdict.NOT_FOUND, [])]
        table.recall(RowName(9 * HOUR, "T", "new", "contract-2"), message_id="new")
        table.open("d")
        table.replace("d", ["b"], file("e", 8, 9.5), from_ms=8 * HOUR)
        assert [row.message_id for row in table.recall(key="contract-1")] == ["n"], "the oldest is forgotten"

    def test_a_new_row_with_the_key_of_a_recalled_one_is_recalled(self, table):
        table.added(file("a", 8, 8.5))
        table.recall(RowName(self.ROW.due_ms, "T", "m", "k"), key="k")
        found = RowName(9 * HOUR, "T", "new", "k")
        assert [(row.verdict, row.message_id) for row in table.recall(found, key="k")] == [
            (RowVerdict.RECALLED, "new"),
            (RowVerdict.ALREADY_RECALLED, "m"),
        ]

    def test_a_bucket_that_was_finished_long_ago_is_nobodys_to_recall(self, table, monkeypatch):
        monkeypatch.setattr(catalog_module, "FAR_TABLE_FINISHED_MAX", 0)
        table.added(file("a", 8, 20))
        table.now_ms = 3 * HOUR
        (view,) = table.claim("x").shares
        table.begin("x", view)
        table.advance("x", view, 10, done=True)
        assert self.verdicts(table.recall(self.ROW)) == [(RowVerdict.HANDED_OVER, [])]

    def test_snapshots_of_earlier_versions_are_read(self, table):
        table.catalog.past_recalls["T", "m"] = catalog_module.PastRecall("T", "m")
        line = table.catalog.to_bytes().partition(b"\n")[0].replace(b'["T","m","",null]', b'["T","m"]')
        assert b'["T","m"]' in line
        assert Catalog.from_bytes(b"%s\n%08x\n" % (line, zlib.crc32(line))).is_recalled("T", "m")

    def test_what_is_recalled_while_a_compaction_runs_stays_recalled(self, table):
        table.added(file("a", 8, 8.5))
        table.open("c")
        table.recall(self.ROW)
        table.replace("c", ["a"], file("b", 8, 8.5), from_ms=8 * HOUR)
        assert table.catalog.is_recalled("T", "m")
        assert table.catalog.recall_count == 1

    def test_another_file_may_hold_the_row(self, table):
        table.added(file("a", 8, 8.5), file("other", 8, 9))
        table.recall(self.ROW)
        table.open("c")
        table.replace("c", ["a"], file("b", 8, 8.5), from_ms=8 * HOUR)
        assert table.catalog.recall_count == 1

    def test_files_to_search(self, table):
        table.added(file("a", 8, 8.5), file("b", 20, 21))
        table.now_ms = 3 * HOUR

        def searched(due_ms: int | None) -> list[str]:
            request = wire.RecallRows("t", "T", "m", None, due_ms)
            return sorted(each.name for each in recalls.files_to_search(table.catalog, request))

        (view,) = table.claim("x").shares
        assert (searched(None), searched(self.ROW.due_ms), searched(20 * HOUR)) == (["a", "b"], ["a"], ["b"])
        table.begin("x", view)
        assert (searched(None), searched(self.ROW.due_ms)) == (["a", "b"], ["a"])
        table.advance("x", view, 10, done=True)
        assert (searched(None), searched(self.ROW.due_ms)) == (["b"], [])

    def test_bounded(self, table, monkeypatch):
        monkeypatch.setattr(recalls, "FAR_TABLE_RECALLS_MAX", 1)
        table.added(file("a", 8, 8.5))
        found = [self.ROW, RowName(self.ROW.due_ms, "T", "other")]
        assert [verdict for verdict, _ in self.verdicts(table.recall(*found))] == [
            RowVerdict.RECALLED,
            RowVerdict.TOO_MANY,
        ]


class TestState:
    def test_is_a_function_of_its_records_and_of_a_snapshot(self, table):
        table.added(file("a", 8, 20))
        table.now_ms = 3 * HOUR
        snapshot = table.catalog.to_bytes()
        (view,) = table.claim("x").shares
        table.recall(RowName(10 * HOUR, "T", "m"))
        table.begin("x", view)
        fresh, restored = Catalog(), Catalog.from_bytes(snapshot)
        for body in table.records:
            fresh.apply_record(decode_changes(body))
            restored.apply_record(decode_changes(body))
        assert fresh.to_bytes() == restored.to_bytes() == table.catalog.to_bytes()

    def test_missing_and_strange_records_are_reported(self, table):
        table.added(file("a", 8, 20))
        fresh = Catalog()
        fresh.apply_record(decode_changes(table.records[0]))
        with pytest.raises(StoreDamagedError, match="records between are missing"):
            fresh.apply_record(decode_changes(table.records[2]))
        other = Table()
        other.catalog.table = "u"
        with pytest.raises(StoreDamagedError, match="table t"):
            other.catalog.apply_record(decode_changes(table.records[1]))
        with pytest.raises(RecordError):
            decode_changes(b"{}")

    def test_damaged_snapshots_are_reported(self, table):
        content = table.catalog.to_bytes()
        with pytest.raises(StoreDamagedError, match="fails its check"):
            Catalog.from_bytes(content.replace(b"t", b"u", 1))
        assert Catalog.from_bytes(content).table == "t"

    def test_other_tables_are_refused(self, table):
        verdict = TableVerdict.WRONG_TABLE
        assert jobs.open_job(table.catalog, wire.OpenJob("u", "j"), 0, RULES).answer.verdict is verdict
        assert recalls.files_page(table.catalog, wire.FilesQuery("u")).verdict is verdict
        claim = wire.ClaimShare("u", "x", "s", True, True)
        assert shares.claim_share(table.catalog, table.leases, claim, 0, 0, RULES).answer.verdict is verdict

    def test_status_and_pages(self, table, monkeypatch):
        table.added(file("a", 8, 9), file("b", 8, 20), file("c", 15, 20))
        status = recalls.table_status(table.catalog, 0, RULES, "memory:")
        assert (status.table, status.file_count, status.rows, status.split_ms) == ("t", 3, 30, 7 * HOUR)
        monkeypatch.setattr(recalls, "FAR_TABLE_PAGE_ITEMS", 2)
        page = recalls.files_page(table.catalog, wire.FilesQuery("t"))
        assert ([each.name for each in page.files], page.next_after) == (["a", "b"], "b")
        rest = recalls.files_page(table.catalog, wire.FilesQuery("t", after_name="b"))
        assert ([each.name for each in rest.files], rest.next_after) == (["c"], None)
        late = recalls.files_page(table.catalog, wire.FilesQuery("t", from_ms=10 * HOUR, until_ms=14 * HOUR))
        assert [each.name for each in late.files] == ["b"]
