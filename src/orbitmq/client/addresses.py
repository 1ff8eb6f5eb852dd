"""Addresses of servers, and which name server to ask.

Rules of this file
1. An address is text `host:port`; an IPv6 host stands in brackets.
2. One name server is asked until it fails; then the next of a list that was shuffled once, so that many clients spread
   over the servers without any of them changing its mind at every request.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterable, Iterator

from orbitmq.client.arguments import check_text
from orbitmq.errors import ConfigurationError, ConnectionLostError
from orbitmq.limits.client import CLIENT_NAME_SERVERS_MAX


def no_connection(address: str, timeout_ms: int, error: OSError) -> ConnectionLostError:
    """What to raise when connecting to `address` failed with `error`, which is a TimeoutError after `timeout_ms`."""
    if isinstance(error, TimeoutError):
        return ConnectionLostError(
            f"no connection to {address} within {timeout_ms} ms",
            request_sent=False,
            remedy="check the address, and that no firewall drops the packets",
        )
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectionLostError(
            f"no connection to {address}: its certificate is refused: {error.verify_message}",
            request_sent=False,
            remedy="trust who signed it: tls=ssl.create_default_context(cafile=...), of a command --tls-trusted; a certificate has to name "
            "the host or address that is connected to",
        )
    if isinstance(error, ssl.SSLError):
        return ConnectionLostError(
            f"no connection to {address}: the TLS handshake failed: {error.reason or error}",
            request_sent=False,
            remedy="see whether the server has a certificate (tls.server.certPath), and asks for one of the client",
        )
    return ConnectionLostError(
        f"no connection to {address}: {error.strerror or str(error) or 'the server closed it in the TLS handshake'}",
        request_sent=False,
        remedy="check that the server runs there; a broker behind NAT must advertise a reachable brokerIP1",
    )


def split_address(address: str) -> tuple[str, int]:
    """`("host", port)` of `host:port` or `[v6]:port`. Raises `ConfigurationError` for anything else."""
    host, separator, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(f"address {address!r}: an IPv6 host needs brackets", remedy=f"write [{host}]:{port}")
    if not separator or not host or not port.isdigit() or not 1 <= int(port) <= 65_535:
        raise ConfigurationError(f"address {address!r} is not host:port", remedy='write for example "localhost:9876"')
    return host, int(port)


def parse_addresses(servers: str | Iterable[str]) -> tuple[str, ...]:
    """Distinct addresses of a list, or of text separated by `;` or `,`. A scheme (`http://`) is dropped."""
    if not isinstance(servers, Iterable) or isinstance(servers, bytes):
        raise ConfigurationError(
            f"name servers are text, not {type(servers).__name__}", remedy='connect("localhost:9876") names one'
        )
    parts = servers.replace(",", ";").split(";") if isinstance(servers, str) else list(servers)
    addresses: dict[str, None] = {}
    for part in parts:
        check_text("a name server", part, or_none=False)
        text = part.strip().rstrip("/").rpartition("/")[2]
        if text:
            split_address(text)
            addresses[text] = None
    if not addresses:
        raise ConfigurationError(
            f"no name server in {servers!r}", remedy='connect("localhost:9876") names one; separate several with ";"'
        )
    if len(addresses) > CLIENT_NAME_SERVERS_MAX:
        raise ConfigurationError(f"{len(addresses)} name servers; at most {CLIENT_NAME_SERVERS_MAX} are allowed")
    return tuple(addresses)


class NameServerChoice:
    """The name server in use, and the order in which others take its place."""

    __slots__ = ("_addresses", "_position")

    def __init__(self, addresses: Iterable[str], source: random.Random | None = None) -> None:
        self._addresses = list(addresses)
        (source or random.Random()).shuffle(self._addresses)
        self._position = 0

    @property
    def current(self) -> str:
        return self._addresses[self._position]

    def candidates(self) -> Iterator[str]:
        """Every address once, the one in use first. Take the next one only after telling `failed` of the last."""
        for _ in range(len(self._addresses)):
            yield self.current

    def failed(self, address: str) -> None:
        """`address` did not answer: use the next one, unless another caller has moved on already."""
        if address == self.current:
            self._position = (self._position + 1) % len(self._addresses)

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._addresses))
