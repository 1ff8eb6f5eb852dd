"""orbitmq: a message broker with first-class delayed messages that speaks RocketMQ's protocols, and its client.

    async with orbitmq.connect("localhost:9876") as mq:
        await mq.send("orders", b"42", tag="created", delay_level=3)

Names are imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq import client

if TYPE_CHECKING:
    from orbitmq.client import *  # noqa: F403 (its `__all__` says what)
    from orbitmq.errors import (
        ClientError,
        ConfigurationError,
        ConnectionLostError,
        MasterAwayError,
        MessageIllegalError,
        NotFoundError,
        OrbitError,
        RemoteError,
        RequestTimeoutError,
        RouteNotFoundError,
        SendFailedError,
        StaleEpochError,
        TimersMissingError,
    )

__all__ = [
    "ClientError",
    "ConfigurationError",
    "ConnectionLostError",
    "MasterAwayError",
    "MessageIllegalError",
    "NotFoundError",
    "OrbitError",
    "RemoteError",
    "RequestTimeoutError",
    "RouteNotFoundError",
    "SendFailedError",
    "StaleEpochError",
    "TimersMissingError",
]
__all__ += client.__all__


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orbitmq import errors

    value = getattr(errors if name.endswith("Error") else client, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
