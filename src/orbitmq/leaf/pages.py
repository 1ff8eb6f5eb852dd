"""Whether pages of a mapped file are in memory, for the sources of the leaf as they run interpreted.

Compiled, they ask the system (`mincore`): the function of this name in `inner_compiled.pxd` stands in for this one.
"""

from __future__ import annotations

from typing import Any


def pages_in_memory(view: Any, begin: int, end: int) -> bool:
    """Plain Python cannot ask: no."""
    return False
