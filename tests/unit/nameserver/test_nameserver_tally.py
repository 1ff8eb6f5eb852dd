"""A name server counts what it is asked, for its metrics."""

from __future__ import annotations

from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.remoting.peer import Peer

PEER: Peer = None  # type: ignore[assignment]


def test_requests_failures_and_unknown_codes_are_counted() -> None:
    server = NameServer(NameServerConfig(), ManualClock(), Deadlines())
    missing = {"namespace": "N", "key": "k"}
    for _ in range(2):
        server.handle(request(RequestCode.GET_KV_CONFIG, missing), PEER)
    server.handle(request(RequestCode.GET_BROKER_CLUSTER_INFO), PEER)
    server.handle(request(29_999), PEER)
    assert dict(server.tally.handled_by_name()) == {"GET_KV_CONFIG": 2, "GET_BROKER_CLUSTER_INFO": 1}
    assert server.tally.failures_by_name() == [("GET_KV_CONFIG", "QUERY_NOT_FOUND", 2)]
    assert server.tally.unsupported == 1
