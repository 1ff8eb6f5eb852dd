"""Taking over archives from before Delta tables: two that the writer of then left, one of topics and one of a log.

The one of topics was killed in its third batch, which is committed: one of its files has its name, the others are staged.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

sys.path.insert(0, str(Path(__file__).resolve().parent))

from archived_rows import add

from orbitmq.columns.message_columns import PropertiesForm
from orbitmq.errors import ConfigurationError, OrbitError, StoreDamagedError, StoreLockedError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.pipelines.archiving import importing, upkeep
from orbitmq.spark.pipelines.archiving.importing import ImportDone, import_archive
from orbitmq.spark.pipelines.archiving.landing import Landing
from orbitmq.spark.pipelines.archiving.logs import Logs
from orbitmq.spark.pipelines.archiving.reached import reached_of
from orbitmq.spark.pipelines.archiving.settings import ArchiveSettings
from orbitmq.spark.pipelines.archiving.table import ArchiveForm, ArchiveTable, SourceKind, looked_up, opened

VECTORS = Path(__file__).parents[4] / "vectors"
TOPICS = ArchiveForm(source=SourceKind.TOPICS, fixed={"properties": "map"})
LOGS = ArchiveForm(source=SourceKind.LOGS, fixed={"properties": "json", "topic": "", "topic-pattern": ""})
ROWS = [("%RETRY%shop", 0, n) for n in range(3)] + [("orders", 0, n) for n in (0, 1, 2, 4, 5, 6, 8)]
ROWS += [("orders", 1, n) for n in (4, 5, 6)]
NAMED = "topic=orders/day=2026-11-23/queue-broker-a-0-00000000000000000002.parquet"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(VECTORS / "archives" / "before-delta.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / "topics"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def imported(old: Path, new: Path) -> ImportDone:
    return import_archive(str(old), str(new))


def rows_of(new: Path) -> list[tuple[str, int, int]]:
    names = ["topic", "queueId", "queueOffset"]
    found = DeltaTable(new).to_pyarrow_table(columns=names).to_pylist()
    return sorted(tuple(row[name] for name in names) for row in found)


def state(old: Path) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((old / "_archive" / "state.json").read_bytes())
    return said


def write_state(old: Path, said: dict[str, Any]) -> None:
    (old / "_archive" / "state.json").write_text(json.dumps(said))


def test_rows_that_were_committed_are_in_the_table_once(old: Path, new: Path) -> None:
    assert imported(old, new) == ImportDone(rows=13, quarantined=4, files=3)
    assert rows_of(new) == ROWS
    reached = reached_of(looked_up(str(new), TOPICS).applications)
    places = [("%RETRY%shop", 0), ("orders", 0), ("orders", 1)]
    assert reached.queues == dict(zip([MessageQueue(t, "broker-a", q) for t, q in places], (3, 9, 8), strict=True))
    assert sorted(reached.quarantined.values()) == [2, 2]
    counts = [(one.rows, one.quarantined, one.missing, one.twice) for one in upkeep.counts(str(new))]
    assert counts == [(3, 0, 0, 0), (7, 2, 0, 0), (3, 2, 0, 0)]


def test_rows_are_as_they_were(old: Path, new: Path) -> None:
    imported(old, new)
    files = [*old.glob("topic=orders/*/*.parquet"), *old.glob("_archive/staged/*/*-1")]
    before = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    after = [row for row in DeltaTable(new).to_pyarrow_table().to_pylist() if row.pop("topic") == "orders"]
    days = {row["queueOffset"]: str(row.pop("day")) for row in after}
    assert sorted(map(repr, after)) == sorted(map(repr, before))
    assert days == {n: "2026-11-22" if n < 2 else "2026-11-23" for n in days} | {4: "None"}


def test_the_archive_of_a_log_goes_on_behind_it(old: Path, new: Path, tmp_path: Path) -> None:
    """Its columns do not say when a message was stored; the directories do."""
    with tarfile.open(VECTORS / "stores" / "plain-clean.tar.xz") as packed:
        packed.extractall(tmp_path / "store", filter="data")
    assert imported(old.with_name("logs"), new).rows == 757
    assert {file["partition"]["day"] for file in pa.table(DeltaTable(new).get_add_actions()).to_pylist()} == {
        DeltaTable(new).to_pyarrow_table(columns=["day"])["day"][0].as_py()
    }
    settings = ArchiveSettings(
        to=str(new), store=[f"broker-a={tmp_path}/store/plain-clean"], properties=PropertiesForm.JSON
    )
    logs = Logs(settings, ("body",))
    assert logs.plan(reached_of({})).pieces
    assert not logs.plan(reached_of(looked_up(str(new), LOGS).applications)).pieces
    assert reached_of(looked_up(str(new), LOGS).applications).since == {"broker-a": 1000}


def test_again_is_as_good_as_once(old: Path, new: Path) -> None:
    imported(old, new)
    version = DeltaTable(new).version()
    assert imported(old, new) == ImportDone()
    assert (DeltaTable(new).version(), rows_of(new)) == (version, ROWS)


def test_an_old_archive_whose_run_went_on_is_not_taken_for_imported(old: Path, new: Path) -> None:
    imported(old, new)
    write_state(old, {**state(old), "batch": state(old)["batch"] + 1, "files": []})
    with pytest.raises(ConfigurationError, match=r"up to batch 3, and its run went on to batch 4 since"):
        imported(old, new)
    assert rows_of(new) == ROWS


class Killed(BaseException):
    """Nothing of ours catches it."""


STEPS: list[tuple[Any, str]] = [
    (importing, "_counted"),
    (importing, "_copied"),
    (Landing, "add"),
    (Landing, "close"),
    (importing, "begun"),
    (ArchiveTable, "prove"),
    (ArchiveTable, "put"),
    (ArchiveTable, "keep"),
    (importing, "ImportDone"),
]
"""In their order: before one is behind the one above."""


@pytest.mark.parametrize(("owner", "name"), STEPS, ids=[name for _, name in STEPS])
def test_a_kill_before_any_step_and_another_run(
    old: Path, new: Path, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: Any, **named: Any) -> Any:
        raise Killed

    monkeypatch.setattr(owner, name, killed)
    with pytest.raises(Killed):
        imported(old, new)
    monkeypatch.undo()
    imported(old, new)
    assert rows_of(new) == ROWS
    assert sum(reached_of(looked_up(str(new), TOPICS).applications).quarantined.values()) == 4


def test_an_import_that_forgets_whom_it_imported_is_found(
    old: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: another name at each run."""
    names = iter("ab")
    monkeypatch.setattr(importing, "import_application", lambda run: f"orbitmq/import/{next(names)}")
    imported(old, new)
    with pytest.raises(ConfigurationError, match="would be in it twice"):
        imported(old, new)


def test_a_table_that_has_messages_of_a_queue_is_refused(old: Path, new: Path) -> None:
    add(new, range(3))
    with pytest.raises(ConfigurationError, match="has orbitmq/queue/orders/broker-a/0 already, up to 3"):
        imported(old, new)
    assert len(rows_of(new)) == 3


def test_a_table_of_other_queues_takes_it(old: Path, new: Path) -> None:
    moved = old / "topic=payments"
    (old / "topic=orders").rename(moved)
    said = state(old)
    said["offsets"]["payments"] = said["offsets"].pop("orders")
    write_state(old, {**said, "files": []})
    add(new, range(3))
    assert imported(old, new).rows == 11
    assert len(rows_of(new)) == 14


def test_a_table_of_logs_is_refused(old: Path, new: Path) -> None:
    imported(old.with_name("logs"), new)
    with pytest.raises(ConfigurationError, match="is an archive of logs"):
        imported(old, new)


def lose_state(old: Path) -> None:
    (old / "_archive" / "state.json").unlink()


def tear_state(old: Path) -> None:
    (old / "_archive" / "state.json").write_text('{"version": 1, "source": "topics"')


def strange_columns(old: Path) -> None:
    write_state(old, {**state(old), "fixed": {"columns": "body,colour", "properties": "map"}})


def lose_staged(old: Path) -> None:
    next(old.glob("_archive/staged/*/*-1")).unlink()


def cut_staged(old: Path) -> None:
    file = next(old.glob("_archive/staged/*/*-1"))
    file.write_bytes(file.read_bytes()[:-1])


def cut(old: Path) -> None:
    (old / NAMED).write_bytes((old / NAMED).read_bytes()[:900])


def other_type(old: Path) -> None:
    table = pq.ParquetFile(old / NAMED).read()
    at = table.schema.get_field_index("queueId")
    pq.write_table(table.set_column(at, "queueId", table["queueId"].cast(pa.int64())), old / NAMED)


def other_columns(old: Path) -> None:
    pq.write_table(pq.ParquetFile(old / NAMED).read().drop(["keys"]), old / NAMED)


def earlier_state(old: Path) -> None:
    write_state(old, {**state(old), **state(old)["before"], "files": [], "before": None})


def strange_place(old: Path) -> None:
    (old / "topic=orders" / "x.parquet").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lose_state, "is no archive from before Delta tables: there is no .*state.json"),
        (tear_state, "state.json does not say how far the archive is"),
        (strange_columns, "no column 'colour'"),
        (lose_staged, "queue-broker-a-1-00000000000000000005.parquet is gone, or not the 3384 bytes"),
        (cut_staged, "queue-broker-a-1-00000000000000000005.parquet is gone, or not the 3384 bytes"),
        (cut, f"{NAMED} cannot be read"),
        (other_type, f"column queueId of .*{NAMED} is int64, and in the archive int32"),
        (other_columns, f"column keys of .*{NAMED} is not there, and in the archive string"),
        (earlier_state, "-00000000000000000006.parquet is not counted: .* has orbitmq/queue/orders/broker-a/0 up to 6"),
        (strange_place, "x.parquet lies where no archive has files"),
    ],
    ids=lambda one: one.__name__ if callable(one) else "",
)
def test_damage_is_named_and_nothing_is_imported(
    old: Path, new: Path, damage: Callable[[Path], None], said: str
) -> None:
    damage(old)
    with pytest.raises(OrbitError, match=said) as caught:
        imported(old, new)
    assert isinstance(caught.value, ConfigurationError if damage is lose_state else StoreDamagedError)
    assert not DeltaTable.is_deltatable(str(new))


def test_an_archive_that_grows_meanwhile_is_not_imported(old: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def growing(self: Landing) -> Any:
        write_state(old, {**state(old), "batch": 4})
        return close(self)

    close = Landing.close
    monkeypatch.setattr(Landing, "close", growing)
    with pytest.raises(StoreLockedError, match="another run archives into"):
        imported(old, new)
    assert not DeltaTable.is_deltatable(str(new))


def test_files_that_somebody_merged_are_taken(old: Path, new: Path) -> None:
    write_state(old, {**state(old), "files": []})
    day = (old / NAMED).parent
    files = sorted(day.glob("*.parquet"))
    merged = pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    for file in files:
        file.unlink()
    pq.write_table(merged, day / "merged.parquet")
    assert imported(old, new).rows == 11


def test_nothing_is_archived_beside_it_and_the_command_is_named(old: Path) -> None:
    assert not DeltaTable.is_deltatable(str(old))
    for refused in (lambda: looked_up(str(old), TOPICS), lambda: opened(str(old)), lambda: imported(old, old)):
        with pytest.raises(ConfigurationError, match="an earlier orbitmq wrote") as caught:
            refused()
        assert f"`orbitmq archive import {old} NEW`" in str(caught.value.remedy)


def test_memory_holds_some_rows_of_one_file(old: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def counting(self: Landing, rows: pa.RecordBatch) -> None:
        sizes.append(rows.num_rows)
        plain(self, rows)

    plain = Landing.add
    monkeypatch.setattr(Landing, "add", counting)
    monkeypatch.setattr(importing, "ARCHIVE_IMPORT_ROWS", 100)
    imported(old.with_name("logs"), new)
    assert (sum(sizes), max(sizes)) == (757, 100)
