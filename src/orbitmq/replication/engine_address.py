"""Where the engine is that keeps the views of groups: `etcd://user@host:2379,host2:2379/prefix?ca=/etc/orbitmq/ca.pem`.

    part        means                                                            default
    user@       who asks; the password is in a file of its own                   nobody
    host:port   endpoints, `,` between; IPv6 in brackets                         port 2379
    /prefix     what all keys begin with, so that clusters can share an engine   orbitmq
    tls         `true` or `false`                                                whether ca or cert is given
    ca          PEM file with who vouches for the engine                         those of the machine
    cert, key   PEM files of a certificate that is shown to the engine           none; key: that of cert

Rules of this file
1. Pure: no file is looked at.
2. A password in the address is refused: addresses are logged, shown and copied.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from orbitmq.limits.engine import ENGINE_ENDPOINTS_MAX

ENGINE_SCHEME: Final = "etcd"
PORT: Final = 2_379
PREFIX: Final = "orbitmq"

_ADDRESS: Final = re.compile(r"([a-z0-9]+)://(?:([^@/?]*)@)?([^@/?]+)(?:/([^?]*))?(?:\?(.*))?")
_ENDPOINT: Final = re.compile(
    r"(?:\[([0-9a-fA-F:.]+(?:%\w+)?)\]|((?:[a-zA-Z0-9_-]{1,63}\.)*[a-zA-Z0-9_-]{1,63}\.?))(?::([0-9]{1,5}))?", re.ASCII
)
_USER: Final = re.compile(r"[^\s:]{1,127}")
_PREFIX: Final = re.compile(r"[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*")
_OPTIONS: Final = ("tls", "ca", "cert", "key")


class EngineEndpoint(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class EngineAddress(msgspec.Struct, frozen=True, kw_only=True):
    endpoints: tuple[EngineEndpoint, ...]
    prefix: str = PREFIX
    """What keys begin with, without a slash at its ends."""

    user: str = ""
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""

    @property
    def shown(self) -> str:
        """For messages: the engine and its endpoints."""
        return f"{ENGINE_SCHEME} {', '.join(map(str, self.endpoints))}"

    def __str__(self) -> str:
        """Text that `parse_engine` reads as the same address."""
        options = {name: str(getattr(self, name)) for name in _OPTIONS[1:] if getattr(self, name)}
        if self.tls:
            options["tls"] = "true"
        user = f"{quote(self.user)}@" if self.user else ""
        query = f"?{urlencode(options, safe='/')}" if options else ""
        return f"{ENGINE_SCHEME}://{user}{','.join(map(str, self.endpoints))}/{self.prefix}{query}"


def parse_engine(text: str) -> EngineAddress | None:
    """None for an empty text. ValueError says what is wrong and what to write instead."""
    if not text:
        return None
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError("write etcd://host:2379,host2:2379/prefix")
    scheme, user, hosts, prefix, query = match.groups(default="")
    if scheme != ENGINE_SCHEME:
        raise ValueError(f"{scheme} is no engine: write etcd://")
    user = unquote(user)
    if ":" in user:
        raise ValueError(
            "the password has its own file: leave it out, and name the file in replicationEnginePasswordFile"
        )
    if match[2] is not None and _USER.fullmatch(user) is None:
        raise ValueError("write the user's name before the @")
    prefix = prefix.strip("/") or PREFIX
    if _PREFIX.fullmatch(prefix) is None:
        raise ValueError("write a prefix of letters, digits, _ . - with a / between parts")
    options = _options(query)
    tls = options.get("tls", "")
    if tls not in ("", "true", "false"):
        raise ValueError("write tls=true or tls=false")
    if "key" in options and "cert" not in options:
        raise ValueError("write cert=, the certificate of that key, as well")
    if tls == "false" and len(options) > 1:
        raise ValueError("write tls=true where ca or cert is given")
    return EngineAddress(
        endpoints=_endpoints(hosts),
        prefix=prefix,
        user=user,
        tls=tls == "true" or bool(options.keys() & {"ca", "cert"}),
        ca=options.get("ca", ""),
        cert=options.get("cert", ""),
        key=options.get("key", ""),
    )


def _endpoints(text: str) -> tuple[EngineEndpoint, ...]:
    found: list[EngineEndpoint] = []
    for part in text.split(","):
        match = _ENDPOINT.fullmatch(part.strip())
        port = int(match[3] or PORT) if match is not None else 0
        if match is None or not 0 < port <= 65_535:
            raise ValueError(f"{part!r} is no endpoint: write host:port, a comma between two")
        found.append(EngineEndpoint(match[1] or match[2], port))
    if len(set(found)) < len(found):
        raise ValueError("name each endpoint once")
    if len(found) > ENGINE_ENDPOINTS_MAX:
        raise ValueError(f"name {ENGINE_ENDPOINTS_MAX} endpoints at most")
    return tuple(found)


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise ValueError("write options as name=value, & between two") from None
    options = dict(pairs)
    if len(options) < len(pairs) or not all(options.values()):
        raise ValueError("give each option once, and a value to each")
    if unknown := options.keys() - set(_OPTIONS):
        raise ValueError(f"{', '.join(sorted(unknown))}: there are the options {', '.join(_OPTIONS)}")
    return options
