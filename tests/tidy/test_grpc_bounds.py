"""Every bound of gRPC has a test that goes one beyond it, and that test is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.limits import test_grpc_bounds as table

from orbitmq.limits import grpc as limits

ROOT = Path(__file__).parents[2]


def test_every_bound_has_a_test() -> None:
    bounds = {name for name in vars(limits) if name.isupper()}
    there = Path(table.__file__).read_text(encoding="utf-8")
    here = set(re.findall(r"\w+", there.partition("# --- here")[2]))
    missing = bounds - here - table.CACHES - table.ELSEWHERE.keys()
    assert not missing, f"go one beyond {sorted(missing)} in a test, and say in {table.__name__} where that is"
    assert table.ELSEWHERE.keys() | table.CACHES <= bounds, "bounds that are gone"
    for bound, where in table.ELSEWHERE.items():
        path, _, name = where.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"the test of {bound} is not at {where}"
