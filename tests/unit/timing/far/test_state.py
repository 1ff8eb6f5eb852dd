"""What the state of the far tier remembers, and for how long."""

from __future__ import annotations

from orbitmq.timing.far.changes import Compacted, FarFile, Finish, Why
from orbitmq.timing.far.state import FarState


def far_file(name: str, rows: int = 3) -> FarFile:
    return FarFile(
        name=name, rows=rows, min_ms=10, max_ms=30, first_source=1, last_source=3, payload_bytes=100, next_ms=10,
        index=f"keys/{name}", index_number=0,
    )  # fmt: skip


def test_rows_that_a_compaction_dropped_are_remembered_while_somebody_may_ask() -> None:
    """Who read the old file a moment ago asks whether its rows still wait."""
    state = FarState()
    state.changed(Compacted([], [far_file("old")], []))
    state.finished(Finish(2, 20, "Topic", Why.RECALLED), 500)
    for _ in range(2):  # recalled long ago: only its row is left
        state.rotate()
    assert not state.is_pending(2)
    state.changed(Compacted(["old"], [far_file("new", 2)], [2]))
    assert state.tombstones == {}
    assert not state.is_pending(2)
    state.rotate()
    assert not state.is_pending(2)
