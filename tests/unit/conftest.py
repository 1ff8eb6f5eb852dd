"""What the unit tests of several servers share: the account of replayed exchanges."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

import orbitmq.cli

COVERAGE = Path(orbitmq.cli.__file__).parent / "coverage.json"


@pytest.fixture
def check_coverage() -> Callable[[Collection[int], Counter[int]], None]:
    """Compare what one server's replay test counted with `orbitmq/cli/coverage.json`.

    Takes the request codes that the server serves and how many recorded exchanges of each agreed. Entries of other
    servers' codes are left alone. With ORBITMQ_WRITE_COVERAGE=1 the file is renewed.
    """

    def check(served: Collection[int], agreed: Counter[int]) -> None:
        kept = json.loads(COVERAGE.read_bytes()) if COVERAGE.exists() else {}
        current = {int(code): entry for code, entry in kept.items() if int(code) not in served}
        current |= {int(code): {"replayed": count} for code, count in agreed.items()}
        document = {str(code): current[code] for code in sorted(current)}
        if os.environ.get("ORBITMQ_WRITE_COVERAGE") == "1":
            COVERAGE.write_text(json.dumps(document, indent=2) + "\n")
        assert json.loads(COVERAGE.read_bytes()) == document, "renew it with ORBITMQ_WRITE_COVERAGE=1"

    return check
