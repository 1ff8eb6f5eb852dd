"""What comes first on a connection of any of our ports: a PROXY preamble, a TLS handshake, or at once the protocol of the port.

Rules of this file
1. A plain connection passes its first bytes on, and from then on its socket and its protocol know nothing of this file.
2. The protocol of the port has the connection from its first moment: it counts it, finds it idle and closes it. What it is given before
   the handshake is done is nothing.
3. A preamble has `HANDSHAKE_MS` from its first byte on, a handshake as well, and at most `HANDSHAKES_MAX` are under way. Where so many
   are, one that takes longer than `HANDSHAKE_YIELDS_MS` makes room: who only begins handshakes keeps nobody out for long.
4. A preamble is looked for only on connections from `proxies`; anybody else's would be believed about other people's addresses.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final, Protocol, cast

import msgspec

from orbitmq.errors import ConfigurationError, ProtocolError
from orbitmq.limits.server import HANDSHAKE_MS, HANDSHAKE_YIELDS_MS, HANDSHAKES_MAX
from orbitmq.server.configuration.tls_settings import TlsMode
from orbitmq.server.connections.addresses import peer_address
from orbitmq.server.connections.proxy_protocol import read_preamble
from orbitmq.server.encryption.certificates import CertificateFiles
from orbitmq.server.encryption.tls import HELLO, REFUSAL, TlsSession, TlsTransport
from orbitmq.server.process.turn import Wakeups

_log = logging.getLogger(__name__)

WAKEUP: Final = "a handshake took too long"

Network = IPv4Network | IPv6Network


class Opening(enum.Enum):
    """What became of the first bytes of a connection that is not simply plain."""

    DONE = "done"
    """It speaks TLS."""
    HANDSHAKE_FAILED = "handshake_failed"
    """The two sides agree on no version or cipher, or it was no TLS."""
    CLIENT_CERTIFICATE = "client_certificate"
    """None was shown where one is demanded, or it was not signed by who is trusted."""
    CLIENT_REFUSED = "client_refused"
    """The client ended it by a TLS alert: most often it does not trust our certificate."""
    PREAMBLE_MALFORMED = "preamble_malformed"
    LOST = "lost"
    """The connection ended in the middle."""
    TOO_SLOW = "too_slow"
    PLAIN_REFUSED = "plain_refused"
    """It was plain and TLS is demanded."""
    TLS_REFUSED = "tls_refused"
    """It was TLS and none is served."""
    TOO_MANY = "too_many"
    """`HANDSHAKES_MAX` were under way."""


class OpeningTraffic(msgspec.Struct):
    """Counters of all ports since the start; `under_way` is the present state."""

    counts: dict[Opening, int] = msgspec.field(default_factory=lambda: dict.fromkeys(Opening, 0))
    under_way: int = 0


class PortProtocol(Protocol):
    """The protocol of a port: asyncio's, and a way to change what it speaks over before its first byte."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def speak_over(self, transport: asyncio.BaseTransport, client: tuple[str, int] | None) -> None:
        """Use this transport from now on; the other side is `client`, where that is not what the transport says."""
        ...


class PortRules:
    """What all ports of a process take; they share the bound of handshakes and the counters."""

    def __init__(
        self,
        wakeups: Wakeups,
        mode: TlsMode = TlsMode.DISABLED,
        certificate: CertificateFiles | None = None,
        proxies: tuple[Network, ...] = (),
        make_certificate: Callable[[], CertificateFiles] | None = None,
    ) -> None:
        """Without a certificate TLS is refused in every mode, but on ports that offer names of protocols: for those `make_certificate`
        makes one at the first handshake, as their clients use TLS unless told otherwise and verify nobody. Raises ConfigurationError,
        OSError."""
        self.wakeups = wakeups
        self.mode = mode
        self.certificate = certificate if mode is not TlsMode.DISABLED else None
        self.traffic = OpeningTraffic()
        self.slow: dict[_FirstBytes, None] = {}
        """Handshakes and preambles that make room for others, the oldest first."""
        self._proxies = proxies
        self._make_certificate = make_certificate if mode is not TlsMode.DISABLED else None
        self._made: CertificateFiles | None = None

    def certificate_for(self, alpn: tuple[str, ...]) -> CertificateFiles | None:
        """The certificate of a port that offers these names; None where TLS is refused."""
        if self.certificate is not None or not alpn or self._make_certificate is None:
            return self.certificate
        if self._made is None:
            try:
                made = self._make_certificate()
            except (ConfigurationError, OSError) as error:
                _log.error("no certificate can be made, TLS is refused: %s", error)
                return None
            made.offer(alpn)
            self._made = made
        return self._made

    def opening(
        self,
        name: str,
        protocol: PortProtocol,
        alpn: tuple[str, ...] = (),
        plain_from: Callable[[str], bool] = lambda host: False,
    ) -> asyncio.Protocol:
        """What a new connection of the port called `name` begins with. alpn, plain_from: see `protocols`."""
        return _FirstBytes(self, name, protocol, alpn, plain_from)

    def may_name_clients(self, address: object) -> bool:
        """Whether a PROXY preamble from this address (as asyncio gives it) is believed."""
        if not self._proxies or not isinstance(address, tuple):
            return False
        neighbour = ip_address(str(address[0]).partition("%")[0])
        mapped = getattr(neighbour, "ipv4_mapped", None)
        return any((mapped or neighbour) in network for network in self._proxies)


class _FirstBytes(asyncio.Protocol):
    """One connection until its protocol has it alone."""

    def __init__(
        self,
        rules: PortRules,
        name: str,
        protocol: PortProtocol,
        alpn: tuple[str, ...],
        plain_from: Callable[[str], bool],
    ) -> None:
        self._rules = rules
        self._name = name
        self._protocol = protocol
        self._alpn = alpn
        self._plain_from = plain_from
        self._transport: asyncio.Transport | None = None
        self._awaits_preamble = False
        self._preamble = b""
        self._client: tuple[str, int] | None = None
        self._session: TlsSession | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- asyncio ----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._awaits_preamble = self._rules.may_name_clients(transport.get_extra_info("peername"))
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._awaits_preamble:
            data = self._after_preamble(transport, data)
        if not data:
            return
        if self._session is not None:
            self._shake_hands(transport, self._session, data)
        elif data[0] == HELLO:
            self._begin_tls(transport, data)
        elif self._rules.mode is TlsMode.ENFORCING and not self._plain_from(self._host(transport)):
            self._refuse(
                transport,
                Opening.PLAIN_REFUSED,
                "a plain connection is closed: tls.server.mode is enforcing; let the client use TLS",
            )
        else:
            self._pass_on(transport, data)

    def eof_received(self) -> bool:
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._stop_waiting()
            self._rules.traffic.counts[Opening.LOST] += 1
        self._protocol.connection_lost(exc)

    # --- one after the other ----------------------------------------------------------------------------------------

    def _after_preamble(self, transport: asyncio.Transport, data: bytes) -> bytes:
        """What follows the preamble; nothing as long as it is not whole."""
        self._preamble += data
        try:
            preamble = read_preamble(self._preamble)
        except ProtocolError as error:
            self._fail(transport, Opening.PREAMBLE_MALFORMED, str(error))
            return b""
        if preamble is None:
            self._wait(transport)
            return b""
        self._stop_waiting()
        self._awaits_preamble = False
        data, self._preamble = self._preamble[preamble.size_bytes :], b""
        self._client = preamble.client
        if preamble.client is not None:
            self._protocol.speak_over(transport, preamble.client)
        return data

    def _pass_on(self, transport: asyncio.Transport, data: bytes) -> None:
        self._stop_waiting()
        transport.set_protocol(cast(asyncio.Protocol, self._protocol))
        self._protocol.data_received(data)

    def _begin_tls(self, transport: asyncio.Transport, data: bytes) -> None:
        certificate = self._rules.certificate_for(self._alpn)
        if certificate is None:
            transport.write(REFUSAL)
            why = "tls.server.mode is disabled" if self._rules.mode is TlsMode.DISABLED else "there is no certificate"
            self._refuse(
                transport,
                Opening.TLS_REFUSED,
                f"TLS is refused: {why}; see tls.server.certPath and tls.test.mode.enable",
            )
            return
        self._wait(transport)
        if not transport.is_closing():
            self._session = TlsSession(certificate.context_for(self._alpn))
            self._shake_hands(transport, self._session, data)

    def _shake_hands(self, transport: asyncio.Transport, session: TlsSession, data: bytes) -> None:
        plain = session.receive(data)
        if session.failure is not None:
            transport.write(session.outgoing())
            reason = session.failure.reason or str(session.failure)
            self._fail(transport, _failure(reason), f"the TLS handshake failed: {reason}")
        elif not session.is_open:
            transport.write(session.outgoing())
        else:
            self._stop_waiting()
            self._rules.traffic.counts[Opening.DONE] += 1
            protocol = self._protocol
            encrypted = TlsTransport(transport, session, cast(asyncio.Protocol, protocol))
            transport.set_protocol(encrypted)
            protocol.speak_over(encrypted, self._client)
            encrypted.give(plain)

    # --- bounds and ends --------------------------------------------------------------------------------------------

    def _wait(self, transport: asyncio.Transport) -> None:
        """From the first byte on the time runs; where too many are under way the connection is closed."""
        traffic = self._rules.traffic
        if self._timer is not None:
            return
        if traffic.under_way >= HANDSHAKES_MAX and self._rules.slow:
            next(iter(self._rules.slow)).make_room()
        if traffic.under_way >= HANDSHAKES_MAX:
            self._refuse(
                transport, Opening.TOO_MANY, f"{HANDSHAKES_MAX} handshakes are under way, further ones are closed"
            )
            return
        traffic.under_way += 1
        self._timer = self._rules.wakeups.call_later(HANDSHAKE_YIELDS_MS / 1_000, WAKEUP, self._is_slow)

    def _is_slow(self) -> None:
        self._rules.slow[self] = None
        left_ms = HANDSHAKE_MS - HANDSHAKE_YIELDS_MS
        self._timer = self._rules.wakeups.call_later(left_ms / 1_000, WAKEUP, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._rules.slow.pop(self, None)
            self._rules.traffic.under_way -= 1

    def _too_slow(self) -> None:
        self._cut(f"did not end its handshake within {HANDSHAKE_MS} ms")

    def make_room(self) -> None:
        """End this handshake for another one."""
        self._cut(f"did not end its handshake within {HANDSHAKE_YIELDS_MS} ms while {HANDSHAKES_MAX} were under way")

    def _cut(self, why: str) -> None:
        self._stop_waiting()
        self._rules.traffic.counts[Opening.TOO_SLOW] += 1
        _log.info("%s: %s %s and is cut", self._name, self._peer(), why)
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, transport: asyncio.Transport, what: Opening, why: str) -> None:
        self._stop_waiting()
        self._rules.traffic.counts[what] += 1
        _log.info("%s: %s: %s", self._name, self._peer(), why)
        transport.close()

    def _refuse(self, transport: asyncio.Transport, what: Opening, why: str) -> None:
        self._rules.traffic.counts[what] += 1
        _log.warning("%s: %s: %s", self._name, self._peer(), why)
        transport.close()

    def _host(self, transport: asyncio.Transport) -> str:
        return (self._client or peer_address(transport))[0]

    def _peer(self) -> str:
        name = self._client or (self._transport and self._transport.get_extra_info("peername"))
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else "a connection"


def _failure(reason: str) -> Opening:
    """What OpenSSL's reason for a failed handshake means."""
    if "CERTIFICATE" in reason and "ALERT" not in reason:
        return Opening.CLIENT_CERTIFICATE
    return Opening.CLIENT_REFUSED if "ALERT" in reason else Opening.HANDSHAKE_FAILED


def protocols(
    rules: PortRules | None,
    name: str,
    make: Callable[[], PortProtocol],
    alpn: tuple[str, ...] = (),
    plain_from: Callable[[str], bool] = lambda host: False,
) -> Callable[[], asyncio.Protocol]:
    """The protocol factory of a port: with `rules` each connection begins with its first bytes.

    alpn: names of protocols, best first, from which clients that ask by ALPN get one. A client that offers only others is served all
    the same, with none chosen: remoting has no name there.
    plain_from(host): whether a connection from there may be plain although TLS is demanded: of a program that knows none.
    """
    if rules is None:
        return cast(Callable[[], asyncio.Protocol], make)
    if rules.certificate is not None:
        rules.certificate.offer(alpn)
    return lambda: rules.opening(name, make(), alpn, plain_from)
