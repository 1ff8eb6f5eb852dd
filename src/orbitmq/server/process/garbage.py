"""How rarely a server process looks for garbage: what a message makes is acyclic, and a full look is a pause for everyone.

It is asked for before the modules of the server are imported: at Python's own thresholds the collector looked at them 130 times while
they came, a tenth of a start.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (50_000, 20, 100)


def collect_rarely() -> None:
    gc.set_threshold(*THRESHOLDS)


def keep_what_is_there() -> None:
    """What the start made lives as long as the process: nobody looks at it again. Not now either: of 58,000 objects 36 are garbage."""
    gc.freeze()
