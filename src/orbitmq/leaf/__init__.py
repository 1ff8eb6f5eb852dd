"""The compiled leaf: the few innermost loops of the server, as one optional extension module.

A function that has a compiled twin carries the decorator `twin`. It is then a plain Python function where the extension
was not built, and the compiled one where it was; nothing else differs. `make leaf` builds it in place.

Rules of this package
1. Plain values go in and come out. It knows bytes, text, numbers and lists, the limits and the errors, and no other part
   of orbitmq.
2. The plain function beside the decorator is the reference and says what the function promises. A twin does the same, or
   answers None where its reference is allowed to, and leaves the work to it.
3. `inner.py`, `timer_rows.py`, `word_sums.py` and `record_checks.py` are the sources of the extension and are importable as they
   are: the tests run the reference, the sources interpreted, and the extension over the same inputs.
4. Bounds checks stay on. No pointers, no unchecked casts.

`ORBITMQ_LEAF=off` leaves the extension unused; `ORBITMQ_LEAF=required` refuses to run without it.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, TypeVar, cast

from orbitmq.errors import ConfigurationError

SWITCH: Final = "ORBITMQ_LEAF"
EXTENSION: Final = "orbitmq.leaf.inner_compiled"
SOURCES: Final = tuple(
    f"{__path__[0]}/{name}" for name in ("inner.py", "timer_rows.py", "word_sums.py", "record_checks.py")
)
"""In the order in which they are compiled as one module. As text: importing pathlib would cost every client 4 ms."""

Function = TypeVar("Function", bound=Callable[..., Any])


def load_extension() -> tuple[ModuleType | None, str]:
    """The extension module, or None and why: it was never built, or from other sources than those that are here.

    Raises ImportError when it is there and cannot be loaded.
    """
    try:
        module = importlib.import_module(EXTENSION)
    except ModuleNotFoundError as error:
        if error.name != EXTENSION:
            raise
        return None, "not built"
    import hashlib  # not needed where there is no extension

    digest = hashlib.sha256()
    for path in SOURCES:
        with open(path, "rb") as source:
            digest.update(source.read())
    if digest.hexdigest() != module.SOURCE_DIGEST:
        return None, "built from another source"
    return module, ""


def _choose(switch: str) -> tuple[ModuleType | None, str]:
    if switch == "off":
        return None, f"switched off by {SWITCH}"
    if switch not in ("", "auto", "required"):
        raise ConfigurationError(f"{SWITCH} is {switch!r}", remedy="set it to auto, off or required")
    module, reason = load_extension()
    if module is None and switch == "required":
        raise ConfigurationError(
            f"{SWITCH} is 'required', but {EXTENSION} was {reason}", remedy="run `make leaf`, or install a wheel"
        )
    return module, reason


_module, _reason = _choose(os.environ.get(SWITCH, ""))

IS_COMPILED: Final = _module is not None
"""Whether the functions with a twin run compiled."""

DESCRIPTION: Final = "compiled" if IS_COMPILED else f"plain Python ({_reason})"
"""Which of the two runs, for people."""

REFERENCES: Final[dict[str, Callable[..., Any]]] = {}
"""The plain function of every twin that was imported, under its name."""


def twin(plain: Function) -> Function:
    """The compiled function of the same name, or `plain` where there is no extension."""
    name = plain.__name__
    REFERENCES[name] = plain
    return plain if _module is None else cast(Function, getattr(_module, name))
