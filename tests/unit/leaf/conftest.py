"""The three ways of running the innermost loops, as one fixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orbitmq import leaf
from orbitmq.columns import records as bulk_records
from orbitmq.columns import soundness
from orbitmq.leaf import inner, record_checks, timer_rows, word_sums
from orbitmq.protocol import batches, javahash, properties, records
from orbitmq.store import index_batch, reading
from orbitmq.timing import restoring

TWINS = (javahash, properties, records, batches, index_batch, reading, restoring, bulk_records, soundness)
"""The modules whose functions have twins; importing them fills `leaf.REFERENCES`."""


class Way:
    """One way of running: `way.encode_stored(...)` is that function run this way."""

    def __init__(self, name: str, functions: Callable[[str], Any]) -> None:
        self.name = name
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        return self._functions(name)


def reference(name: str) -> Any:
    if name == "hash_entries":
        return index_batch.KeyHasher().hash_entries
    return leaf.REFERENCES[name]


@pytest.fixture(params=["reference", "interpreted", "compiled"], scope="module")
def way(request: pytest.FixtureRequest) -> Way:
    if request.param == "reference":
        return Way("reference", reference)
    if request.param == "interpreted":
        return Way("interpreted", (vars(inner) | vars(timer_rows) | vars(word_sums) | vars(record_checks)).__getitem__)
    module, reason = leaf.load_extension()
    if module is None:
        pytest.skip(f"the extension was {reason}: run `make leaf`")
    return Way("compiled", lambda name: getattr(module, name))
