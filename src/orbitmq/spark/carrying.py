"""What travels to a worker says first whether that worker can run it.

Spark gives its workers pickled objects. One of a class that a worker cannot import fails there with a ModuleNotFoundError inside two
stacks; one of another release fails anywhere, or not at all and does something else. So readers, writers and the functions of pipelines
travel as bytes beside a few lines of source text, which need nothing but Python: they compare the release of orbitmq and the minor
version of Python with the sender's, and only then read the bytes.

Rules of this file
1. The text runs in any Python 3, with or without orbitmq, and raises an error that has the name of ours.
2. It costs a task well under a millisecond where all is well.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from orbitmq.release import VERSION

if TYPE_CHECKING:
    import pyarrow as pa

LOADER: Final = """
def load(payload, release, python, sender):
    import pickle, socket, sys
    here = "%d.%d" % sys.version_info[:2]
    found, why = None, ""
    try:
        from orbitmq.release import VERSION as found
    except Exception as problem:  # a Python that is too old for it says SyntaxError
        why = str(problem)
    if found == release and here == python:
        kind, state = pickle.loads(payload)
        made = kind.__new__(kind)
        made.__dict__.update(state)
        return made
    has = "no orbitmq (%s)" % why if found is None else "orbitmq " + found
    kind = type("SparkWorkerError", (RuntimeError,), {"__module__": "orbitmq.errors"})
    raise kind(
        "the worker on %s runs %s, which is Python %s with %s; %s, which is Python %s with orbitmq %s "
        "(install orbitmq %s there for a Python %s, or say by PYSPARK_PYTHON which Python the workers are to run)"
        % (socket.gethostname(), sys.executable, here, has, sender, python, release, release, python)
    )
"""

_EXPRESSION: Final = f"(lambda space: exec({LOADER!r}, space) or space['load'])({{}})"


class _Loader:
    """Stands for the function `load` in a pickle, where it is its text."""

    def __call__(self, *_: object) -> object:
        raise AssertionError("only what is read from a pickle is called")

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return eval, (_EXPRESSION,)


_LOADER: Final = _Loader()


def carried(thing: object) -> tuple[Any, ...]:
    """What `__reduce__` of an object is to return that travels to workers. Its attributes are pickled as Spark would."""
    from pyspark import cloudpickle

    payload = cloudpickle.dumps((type(thing), thing.__dict__))  # type: ignore[no-untyped-call]
    python = ".".join(str(number) for number in sys.version_info[:2])
    return _LOADER, (payload, VERSION, python, f"it was sent from {socket.gethostname()} by {sys.executable}")


class Carried:
    """A class whose objects travel to workers. They are made there without `__init__`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return carried(self)


class ArrowTask(Carried):
    """A function for `mapInArrow`, which takes an iterator of batches and gives one."""

    def __init__(self, run: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
        self._run = run

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self._run(batches)
