"""Jobs that load files, whose driver, workers and broker are killed, leave every row there once."""

from __future__ import annotations

from pathlib import Path

import pytest
from killed_loads import run


@pytest.mark.timeout(900)
def test_every_row_is_there_once(tmp_path: Path) -> None:
    """`make bulk-campaign` kills a hundred."""
    outcome = run(tmp_path, 1, 4)
    assert outcome.wrong == {}
    assert outcome.kills.total() == 4
    assert outcome.jobs > 0


@pytest.mark.timeout(900)
def test_a_job_that_forgets_its_name_is_found_out(tmp_path: Path) -> None:
    outcome = run(tmp_path, 1, 1, planted=True)
    assert any(count > 1 for count in outcome.wrong.values())
