"""Which address a broker tells its clients, and how addresses are written.

Rules of this file
1. `brokerIP1` if given, else the address it listens on, else (when it listens everywhere) the first address of this
   machine that is not loopback.
"""

from __future__ import annotations

import asyncio
import socket

from orbitmq.errors import ConfigurationError

ANY_ADDRESSES = frozenset({"0.0.0.0", "::", ""})


def advertised_address(configured: str, bound: str) -> str:
    """The IP address to announce. Raises ConfigurationError when a host name cannot be resolved."""
    chosen = configured or bound
    if chosen in ANY_ADDRESSES:
        return _first_outside_loopback()
    try:
        family, *_, sockaddr = socket.getaddrinfo(chosen, None, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ConfigurationError(
            f"the broker's address {chosen!r} cannot be resolved: {error}", remedy="set brokerIP1 to an IP address"
        ) from error
    del family
    return str(sockaddr[0])


def _first_outside_loopback() -> str:
    for target in ("192.0.2.1", "2001:db8::1"):  # documentation addresses: nothing is sent to them
        family = socket.AF_INET6 if ":" in target else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return "127.0.0.1"


def reserved_port(host: str) -> socket.socket:
    """A socket that holds a free port of `host` and does not listen yet; the caller closes it. Raises ConfigurationError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, 0))
    except OSError as error:
        held.close()
        raise ConfigurationError(f"no free port can be had on {host}: {error.strerror or error}") from error
    return held


def endpoint(ip: str, port: int) -> str:
    """`ip:port`, an IPv6 address in brackets."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def reachable(host: str) -> str:
    """The address at which this machine reaches itself where it listens on `host`."""
    return "127.0.0.1" if host == "0.0.0.0" else "[::1]" if host == "::" else host


def peer_address(transport: asyncio.BaseTransport) -> tuple[str, int]:
    """Address and port of the other side, an IPv4 address in its own form also on an IPv6 socket; `("", 0)` where there are none."""
    name = transport.get_extra_info("peername")
    if not isinstance(name, tuple) or len(name) < 2:
        return "", 0
    ip = str(name[0]).partition("%")[0]
    mapped = ip.startswith("::ffff:") and "." in ip
    return ip.removeprefix("::ffff:") if mapped else ip, int(name[1])
