"""The port of a broker for clients of RocketMQ 5: when it opens, and what is done without it.

Rules of this file
1. The default port may be taken, by RocketMQ's proxy or another broker: then this one goes without, and says so. A port that somebody
   asked for must be had.
2. What carries calls out is made, and protobuf imported, at the first connection.
"""

from __future__ import annotations

import logging

import msgspec

from orbitmq.broker.broker import Broker
from orbitmq.errors import PortTakenError
from orbitmq.server.grpc.listener import CallHandler, GrpcListener
from orbitmq.server.process.surroundings import Surroundings

logger = logging.getLogger("orbitmq.server")


class MessagingPort:
    """A listener of gRPC over one broker."""

    def __init__(self, process: Surroundings, broker: Broker) -> None:
        self._settings = process.settings
        self._broker = broker
        self.listener = GrpcListener(
            "gRPC",
            broker,
            self._make_calls,
            process.turn,
            process.wakeups,
            process.clock,
            msgspec.structs.replace(process.settings.listener.limits(), idle_ms=process.settings.grpc.idle_ms),
            room=process.room,
            rules=process.rules,
        )
        self.address: tuple[str, int] | None = None
        """Where it listens; None when it does not."""

    def _make_calls(self) -> CallHandler:
        from orbitmq.broker.messaging.front import MessagingFront

        port = self.listener.address[1]
        return MessagingFront(self._broker.core, self._broker.rooms, self._settings.messaging, port)

    async def start(self) -> None:
        """Open the port, unless it is switched off. PortTakenError or ConfigurationError when it cannot be had."""
        grpc = self._settings.grpc
        if not grpc.enable:
            return
        try:
            await self.listener.start(self._settings.host, grpc.port)
        except PortTakenError as error:
            if self._settings.grpc_port_asked_for:
                raise
            logger.warning("%s; this broker serves no clients of RocketMQ 5, give it a port with --grpc-port", error)
        else:
            self.address = self.listener.address

    def close_calls(self) -> None:
        """Before the broker closes: what waits here is answered."""
        self.listener.close_calls()

    async def stop(self) -> None:
        """Close the port; it may be opened again."""
        await self.listener.stop()
        self.address = None

    async def abort(self) -> None:
        """Break every connection, as a process that is killed."""
        await self.listener.abort()
