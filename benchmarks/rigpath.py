"""Puts the tests and the rig of the interoperability tests on the import path: brokers, processes and wire are the same for both."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
RIG: Final = str(REPOSITORY / "tests" / "interop")

for place in (str(REPOSITORY), RIG):
    if place not in sys.path:
        sys.path.insert(0, place)
