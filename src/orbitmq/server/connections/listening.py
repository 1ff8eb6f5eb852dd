"""How a port is opened, and where it listens then: the same for every port of a server."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable

from orbitmq.errors import ConfigurationError, PortTakenError


async def opened(server: Awaitable[asyncio.Server], name: str, place: tuple[str, int], remedy: str) -> asyncio.Server:
    """`name` is for people. PortTakenError with `remedy` where another program has the port, ConfigurationError where the address cannot
    be had."""
    try:
        return await server
    except OSError as error:
        host, port = place
        problem = f"{name} cannot listen on {host}:{port}: "
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(f"{problem}the port is taken", remedy=remedy) from error
        raise ConfigurationError(f"{problem}{error.strerror or error}") from error


def bound_address(server: asyncio.Server | None) -> tuple[str, int] | None:
    """None where it does not listen."""
    if server is None or not server.sockets:
        return None
    host, port = server.sockets[0].getsockname()[:2]
    return str(host), int(port)
