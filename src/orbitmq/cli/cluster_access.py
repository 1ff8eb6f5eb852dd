"""How commands reach a cluster: the options they share, and a client for the length of a command.

Rules of this file
1. Commands name a name server; brokers are found through it. What they ask is in the client's `Admin`.
2. Every call has a time limit, and an error says what was being done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from orbitmq.client import Client

DEFAULT_NAMESRV = "127.0.0.1:9876"

NamesrvOption = Annotated[
    str,
    typer.Option("--namesrv", "-n", envvar=["ORBITMQ_NAMESRV", "NAMESRV_ADDR"], help="Name servers, `;` between."),
]
BrokerOption = Annotated[
    str | None,
    typer.Option("--broker", "-b", help="Only this broker: its name, or host:port.", show_default=False),
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="Only brokers of this cluster.", show_default=False)
]
DEFAULT_TIMEOUT_MS = 5_000
TimeoutOption = Annotated[int, typer.Option("--timeout-ms", min=1, max=600_000, help="Time limit of one call.")]

Result = TypeVar("Result")


def run(work: Callable[[Client], Awaitable[Result]], namesrv: str, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> Result:
    """Run `work` with a client of the cluster and close its connections."""
    import asyncio

    from orbitmq.client import ClientOptions, connect

    async def inside() -> Result:
        options = ClientOptions(
            connect_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms, admin_timeout_ms=timeout_ms
        )
        async with connect(namesrv, options=options) as client:
            return await work(client)

    return asyncio.run(inside())
