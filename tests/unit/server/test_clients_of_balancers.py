"""Behind a load balancer a white list and the sources of a policy are about the client that it names, in plain words and over TLS.

A connection without a socket goes the whole way: first bytes, the connection of a listener, the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from ipaddress import ip_network

import pytest
from tests.callers import CLUSTER, TOPIC, Grant, UsersInMemory, led_to, signed
from tests.worlds.certificates import Authority
from tests.worlds.opened_port import FiredTimers, NoSocket

from orbitmq.access.gate import Denied, Gate
from orbitmq.access.plain.accounts import read_plain_tree
from orbitmq.access.plain.gate import PlainGate
from orbitmq.access.plain.table import PlainTable
from orbitmq.access.users import User
from orbitmq.access.users_gate import GateRules, UsersGate
from orbitmq.clock import ManualClock
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Command, encode, request
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.requests import Action
from orbitmq.server.configuration.tls_settings import TlsMode, TlsSettings
from orbitmq.server.connections import first_bytes
from orbitmq.server.connections.accepted import AcceptedPeer
from orbitmq.server.connections.first_bytes import PortRules, protocols
from orbitmq.server.connections.listener import Listener
from orbitmq.server.connections.proxy_protocol import Preamble
from orbitmq.server.encryption.certificates import CertificateFiles
from orbitmq.server.encryption.tls import TlsTransport
from orbitmq.server.process.turn import Turn

BALANCER, KNOWN, STRANGER = "10.0.0.1", "203.0.113.7", "203.0.113.8"
ANN = User("ann", "secret-of-ann")
CLOCK = ManualClock(1_700_000_000_000)


class Guard:
    """A handler that asks a gate and keeps who came through: the addresses, as the gate saw them."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.passed: list[str] = []

    def handle(self, request: Command, peer: Peer) -> Command | None:
        with contextlib.suppress(Denied):
            self.gate.admit(request, peer, led_to)
            self.passed.append(peer.address[0])
        return None

    def handle_excess(self, request: Command, peer: Peer) -> Command | None:
        return None

    def peer_closed(self, peer: Peer) -> None: ...

    def end_turn(self) -> None: ...


def white_list(address: str) -> PlainGate:
    """RocketMQ 4: this address is not asked who it is, and there is no account."""
    table = PlainTable([read_plain_tree({"globalWhiteRemoteAddresses": [address]}, "plain_acl.yml")])
    return PlainGate(lambda: table, CLUSTER, CLOCK)


def sources(address: str) -> UsersGate:
    """RocketMQ 5: the user may publish, from this address."""
    users = UsersInMemory(ANN)
    users.grant(ANN, Grant(f"Topic:{TOPIC}", frozenset({Action.PUB}), sources=(address,)))
    return UsersGate(users, GateRules(CLUSTER), CLOCK)


class Balanced:
    """A port that believes what the balancer says."""

    def __init__(self, loop: asyncio.AbstractEventLoop, certificate: CertificateFiles, authority: Authority) -> None:
        self._loop = loop
        networks = (ip_network(f"{BALANCER}/32"),)
        self._rules = PortRules(FiredTimers(), TlsMode.PERMISSIVE, certificate, networks)
        self._trusting = ssl.create_default_context(cafile=str(authority.file))

    def passed(self, gate: Gate, client: str, *, tls: bool) -> list[str]:
        """Who comes through, of one client behind the balancer that sends a message."""
        guard, timers = Guard(gate), FiredTimers()
        listener = Listener("port", guard, Turn(self._loop), timers, CLOCK, rules=self._rules)
        wire = NoSocket(BALANCER)
        wire.protocol = protocols(self._rules, "port", lambda: AcceptedPeer(listener))()
        wire.protocol.connection_made(wire)
        wire.feed([f"PROXY TCP4 {client} {BALANCER} 4711 10911\r\n".encode()])
        send = request(RequestCode.SEND_MESSAGE_V2, {"a": "p", "b": TOPIC})
        data = encode(signed(send, ANN))
        wire.feed(encrypted(self._trusting, data, wire) if tls else [data])
        assert isinstance(wire.protocol, TlsTransport) is tls
        return guard.passed


def encrypted(context: ssl.SSLContext, said: bytes, wire: NoSocket) -> Iterator[bytes]:
    """What a client writes that shakes hands and says something."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    for action in (client.do_handshake, client.do_handshake, lambda: client.write(said)):
        with contextlib.suppress(ssl.SSLWantReadError):
            action()
        yield outgoing.read()
        incoming.write(wire.written)
        wire.written.clear()


@pytest.fixture(scope="module")
def balanced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Balanced]:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    pair = authority.issue("server")
    certificate = CertificateFiles(TlsSettings(cert_path=str(pair.cert), key_path=str(pair.key)), CLOCK)
    loop = asyncio.new_event_loop()
    yield Balanced(loop, certificate, authority)
    loop.close()


def wrong(balanced: Balanced) -> list[str]:
    """What a white list or a source does that it must not."""
    return [
        f"{made.__name__} of {listed}: {client}, {'TLS' if tls else 'plain'}"
        for made in (white_list, sources)
        for listed in (KNOWN, BALANCER)
        for client in (KNOWN, STRANGER)
        for tls in (False, True)
        if balanced.passed(made(listed), client, tls=tls) != ([client] if client == listed else [])
    ]


def test_it_is_about_the_client(balanced: Balanced) -> None:
    assert wrong(balanced) == []


def the_peer_is_the_balancer(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AcceptedPeer.speak_over
    monkeypatch.setattr(AcceptedPeer, "speak_over", lambda self, transport, client: right(self, transport, None))


def the_handshake_forgets_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    right = AcceptedPeer.speak_over

    def over(self: AcceptedPeer, transport: asyncio.BaseTransport, client: tuple[str, int] | None) -> None:
        right(self, transport, None if isinstance(transport, TlsTransport) else client)

    monkeypatch.setattr(AcceptedPeer, "speak_over", over)


def the_preamble_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    read = first_bytes.read_preamble

    def skipped(data: bytes) -> Preamble | None:
        found = read(data)
        return found and Preamble(found.size_bytes, None)

    monkeypatch.setattr(first_bytes, "read_preamble", skipped)


@pytest.mark.parametrize(
    "planted", [the_peer_is_the_balancer, the_handshake_forgets_the_client, the_preamble_is_skipped]
)
def test_planted_lists_of_balancers_are_found(
    planted: Callable[[pytest.MonkeyPatch], None], balanced: Balanced, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch)
    assert f"white_list of {BALANCER}: {STRANGER}, TLS" in wrong(balanced)
