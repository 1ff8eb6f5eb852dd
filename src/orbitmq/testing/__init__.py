"""Testing programs that use orbitmq: a broker inside the test, with a clock that the test moves.

    async with orbitmq.testing.EmbeddedBroker() as broker:
        ...
        await broker.advance(timedelta(days=3))

Names are imported when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.testing.blocking import SyncEmbeddedBroker
    from orbitmq.testing.contents import PendingMessage
    from orbitmq.testing.embedded import EmbeddedBroker
    from orbitmq.testing.server import EmbeddedTimeoutError

__all__ = ["EmbeddedBroker", "EmbeddedTimeoutError", "PendingMessage", "SyncEmbeddedBroker"]

_HOMES = {
    "EmbeddedBroker": "orbitmq.testing.embedded",
    "EmbeddedTimeoutError": "orbitmq.testing.server",
    "PendingMessage": "orbitmq.testing.contents",
    "SyncEmbeddedBroker": "orbitmq.testing.blocking",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
