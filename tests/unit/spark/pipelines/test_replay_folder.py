"""The folder of a replay: what it keeps comes back, and what it cannot read is no beginning."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from orbitmq.errors import ConfigurationError, StoreError
from orbitmq.spark.pipelines.replaying.folder import ReplayDone, ReplayFolder
from orbitmq.spark.pipelines.replaying.plan import ReplayPlan, Stretch

PLAN = ReplayPlan(
    work="w", settings={"to": "t"}, since_ms=1, until_ms=None, slice_rows=5, brokers={"a": "b"},
    stretches=(Stretch("2026-05-01", "orders", "a", 0, 0, 9),),
)  # fmt: skip


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_what_was_kept_comes_back(tmp_path: Path, form: str) -> None:
    place = form.format(tmp_path / "deep" / "er")
    folder = ReplayFolder(place)
    assert (folder.plan(), folder.done()) == (None, ReplayDone())
    folder.begin(PLAN)
    for slices in (1, 2):
        folder.keep(ReplayDone(slices=slices, rows_read=8, rows_written=7))
    again = ReplayFolder(place)
    assert (again.plan(), again.done()) == (PLAN, ReplayDone(slices=2, rows_read=8, rows_written=7))
    assert sorted(path.name for path in (tmp_path / "deep" / "er").iterdir()) == ["done.json", "plan.json"]


@pytest.mark.parametrize("text", ["", "{", '{"work": 5}', "[1]"])
def test_what_cannot_be_read_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"plan.json cannot be read: .*begin anew in another folder"):
        ReplayFolder(str(tmp_path)).plan()


def test_a_place_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/folder cannot be written"):
        ReplayFolder(str(tmp_path / "file" / "folder")).begin(PLAN)
    with pytest.raises(ConfigurationError, match="nowhere://x is no place"):
        ReplayFolder("nowhere://x")


def test_what_was_kept_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut must not take a note behind a slice that the brokers have forgotten by the time somebody goes on."""
    synced: list[str] = []
    monkeypatch.setattr("orbitmq.spark.durable.sync", lambda place: synced.append(place.path))
    folder = ReplayFolder(str(tmp_path / "replay"))
    folder.begin(PLAN)
    folder.keep(ReplayDone(slices=1))
    assert [Path(path).name.split(".json.")[0] for path in synced] == [".plan", "replay", ".done", "replay"]


def test_accounts_are_added_up() -> None:
    one = ReplayDone(slices=3, rows_read=10, rows_written=7, rows_quarantined=1)
    assert one.plus(ReplayDone(slices=1, rows_read=5, rows_written=2, rows_quarantined=3)) == ReplayDone(
        slices=4, rows_read=15, rows_written=9, rows_quarantined=4
    )
