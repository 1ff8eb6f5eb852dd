"""`orbitmq worker`: what it does beside running handlers. A worker that runs: `test_serve`."""

from __future__ import annotations

from pathlib import Path

from orbitmq.cli.workers import there_while_ready


def test_the_file_of_a_worker_that_was_killed_says_nothing_of_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "ready"
    file.touch()
    with there_while_ready(file) as on_ready:
        assert not file.exists()
        assert on_ready is not None
        on_ready()
        assert file.exists()
    assert not file.exists()


def test_without_a_file_there_is_nothing_to_tell() -> None:
    with there_while_ready(None) as on_ready:
        assert on_ready is None
