"""Metrics of a name server. RocketMQ has none of its own for it.

Rules of this file
1. Everything is read from what the name server keeps anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.nameserver.server import NameServer
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, by_label, one


class NameServerMetrics:
    """The collector of one name server."""

    def __init__(self, server: NameServer) -> None:
        self._server = server

    def __call__(self) -> Iterator[Family]:
        yield one(catalogue.NS_BROKERS, len(self._server.routes.live))
        yield one(catalogue.NS_TOPICS, len(self._server.routes.topics))
        yield one(catalogue.NS_KV_BYTES, self._server.kv.size_bytes)
        if self._server.gate is not None:
            yield by_label(catalogue.NS_ACCESS_DENIED, list(self._server.gate.denials.items()))
