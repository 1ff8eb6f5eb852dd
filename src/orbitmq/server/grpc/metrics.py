"""Metrics of the port for gRPC, beside those that every port has."""

from __future__ import annotations

from collections.abc import Iterator

from orbitmq.protocol.http2.frames import ErrorCode
from orbitmq.server.grpc.listener import GrpcListener
from orbitmq.telemetry import catalogue
from orbitmq.telemetry.metric import Family, by_label, one

MODE = "local"
"""RocketMQ's name for a proxy inside a broker."""


class GrpcMetrics:
    """The collector of one port. Costs 0.3 us for each connection."""

    def __init__(self, listener: GrpcListener) -> None:
        self._listener = listener

    def __call__(self) -> Iterator[Family]:
        listener, figures = self._listener, self._listener.figures
        connections = [connection.http2 for connection in listener.connections]
        yield by_label(catalogue.PROXY_UP, [(MODE, int(listener.is_listening))])
        yield one(catalogue.HTTP2_STREAMS, sum([http2.stream_count for http2 in connections]))
        yield one(catalogue.HTTP2_WAITING, sum([http2.queued_bytes for http2 in connections]))
        yield by_label(catalogue.HTTP2_RESETS, [("client", figures.resets_received), ("server", figures.resets_sent)])
        yield one(catalogue.HTTP2_REFUSED, figures.streams_refused)
        yield one(catalogue.HTTP2_EXHAUSTED, figures.answers_waited)
        yield one(catalogue.HTTP2_DROPPED, figures.answers_dropped)
        yield by_label(catalogue.HTTP2_ENDS, [(ErrorCode(code).name, n) for code, n in sorted(figures.ends.items())])
