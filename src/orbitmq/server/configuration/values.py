"""Text of a configuration value to a typed value and back.

Rules of this file
1. Every error names the key, the place it came from, the value and what is allowed.
2. Nothing is clamped. `round_up_to` is the one exception: RocketMQ rounds that file size itself, and the size
   must come out the same for its stores to open.
3. `to_text(key, parse(key, text))` is the value as RocketMQ would print it.
"""

from __future__ import annotations

import enum
import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final

from orbitmq.errors import ConfigurationError
from orbitmq.replication.engine_address import parse_engine
from orbitmq.replication.settings import BrokerKind, ReplicationAck
from orbitmq.server.configuration.keys import Key, ValueKind
from orbitmq.server.configuration.tls_settings import ClientCertificates, TlsMode
from orbitmq.store.settings import FlushDiskType
from orbitmq.telemetry.catalogue import RESERVED_LABELS

_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")
_LEVEL: Final = re.compile(r"[0-9]{1,15}[smhd]")
_LABEL: Final = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*):([^,]*)")
_LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
_PART: Final = re.compile(r"[a-z_]+(\.[a-z_]+)*")
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^\s:;,]+):([0-9]{1,5})")

type_of_choice: Final[dict[str, type[enum.Enum]]] = {
    "flushDiskType": FlushDiskType,
    "brokerRole": BrokerKind,
    "replicationAck": ReplicationAck,
    "tls.server.mode": TlsMode,
    "tls.server.need.client.auth": ClientCertificates,
}
"""Choices whose settings field is an enum."""


def parse(key: Key, text: str, where: str) -> object:
    """The value of `text` for the settings field of `key`, or ConfigurationError. `where` names the source."""
    plain = text.strip()
    if key.optional and not plain:
        return None
    match key.kind:
        case ValueKind.BOOL:
            return _parse_bool(key, plain, where)
        case ValueKind.INT:
            return _parse_int(key, plain, where)
        case ValueKind.CHOICE:
            if plain not in key.choices:
                raise _wrong(key, plain, where, "one of " + ", ".join(key.choices))
            chosen = type_of_choice.get(key.key)
            return plain if chosen is None else chosen(plain)
        case ValueKind.NAME:
            if _NAME.fullmatch(plain) is None:
                raise _wrong(key, plain, where, "1 to 127 of the characters a-z A-Z 0-9 _ - % |")
            return plain
        case ValueKind.PATH:
            if not plain or "\0" in plain:
                raise _wrong(key, plain, where, "a path")
            return Path(plain).expanduser()
        case ValueKind.HOURS:
            return _parse_hours(key, plain, where)
        case ValueKind.ADDRESSES:
            return _parse_addresses(key, plain, where)
        case ValueKind.KEYS:
            return tuple(part.strip() for part in plain.split(";") if part.strip())
        case ValueKind.LEVELS:
            # Split at single blanks, as RocketMQ does: a double blank is a broken list there as well.
            if not all(_LEVEL.fullmatch(part) for part in plain.split(" ")):
                raise _wrong(key, plain, where, "delays such as `1s 5s 10m 2h`, one blank between them, units s m h d")
            return plain
        case ValueKind.LABELS:
            return _parse_labels(key, plain, where)
        case ValueKind.LOG_LEVELS:
            return _parse_log_levels(key, plain, where)
        case ValueKind.NETWORKS:
            return _parse_networks(key, plain, where)
        case ValueKind.ENGINE:
            try:
                return parse_engine(plain)
            except ValueError as error:
                raise _wrong(key, plain, where, f"{allowed(key)}: {error}") from None
        case ValueKind.TEXT | ValueKind.SECRET:
            return plain


def to_text(value: object) -> str:
    """A typed value as RocketMQ prints it: `true`, `04;16`, `host:1;host:2`, the name of an enum's member."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return ",".join(f"{name}:{text}" for name, text in value)
    if isinstance(value, tuple):
        return ";".join(f"{part:02d}" if isinstance(part, int) else str(part) for part in value)
    return "" if value is None else str(value)


def allowed(key: Key) -> str:
    """What may be written for `key`, in words; for error messages and the documentation."""
    match key.kind:
        case ValueKind.BOOL:
            return "`true` or `false`"
        case ValueKind.CHOICE:
            return " or ".join(f"`{choice}`" for choice in key.choices)
        case ValueKind.INT:
            return f"{key.low if key.low is not None else '-'} to {key.high if key.high is not None else '-'}"
        case ValueKind.PATH:
            return "a path"
        case ValueKind.NAME:
            return "a name of up to 127 characters"
        case ValueKind.HOURS:
            return "hours 0 to 23, `;` between"
        case ValueKind.ADDRESSES:
            return "`host:port`, `;` between"
        case ValueKind.KEYS:
            return "keys, `;` between"
        case ValueKind.LEVELS:
            return "delays, a blank between"
        case ValueKind.LABELS:
            return "`name:value`, `,` between"
        case ValueKind.LOG_LEVELS:
            return "a level, `part=level`, `;` between; levels are " + ", ".join(f"`{level}`" for level in _LOG_LEVELS)
        case ValueKind.NETWORKS:
            return "addresses or networks such as `10.0.0.0/8`, `;` between"
        case ValueKind.ENGINE:
            return "`etcd://host:2379,host2:2379/prefix`"
        case ValueKind.TEXT | ValueKind.SECRET:
            return "text"


def _parse_bool(key: Key, plain: str, where: str) -> bool:
    folded = plain.lower()
    if folded not in ("true", "false"):
        raise _wrong(key, plain, where, "true or false")
    return folded == "true"


def _parse_int(key: Key, plain: str, where: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,19}", plain) is None:
        raise _wrong(key, plain, where, "a whole number")
    number = int(plain)
    if key.round_up_to > 1:
        number = -(-number // key.round_up_to) * key.round_up_to
    if (key.low is not None and number < key.low) or (key.high is not None and number > key.high):
        unit = f" ({key.unit})" if key.unit else ""
        raise _wrong(key, plain, where, f"{allowed(key)}{unit}")
    return number


def _parse_hours(key: Key, plain: str, where: str) -> tuple[int, ...]:
    parts = plain.split(";")
    if not all(re.fullmatch(r"[0-9]{1,2}", part.strip()) and int(part) <= 23 for part in parts):
        raise _wrong(key, plain, where, "hours from 00 to 23, separated by semicolons")
    return tuple(int(part) for part in parts)


def _parse_addresses(key: Key, plain: str, where: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in plain.split(";") if part.strip())
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None or not 0 < int(match[2]) <= 65535:
            raise _wrong(key, plain, where, "host:port, several separated by semicolons")
    return addresses


def _parse_networks(key: Key, plain: str, where: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in plain.split(";") if part.strip())
    except ValueError:
        raise _wrong(key, plain, where, f"{allowed(key)}; a network has no bits set beyond its length") from None


def _parse_labels(key: Key, plain: str, where: str) -> tuple[tuple[str, str], ...]:
    labels: dict[str, str] = {}
    for part in (piece.strip() for piece in plain.split(",")):
        if not part:
            continue
        match = _LABEL.fullmatch(part)
        if match is None or match[1].startswith("__") or match[1] in RESERVED_LABELS or match[1] in labels:
            raise _wrong(key, plain, where, "name:value pairs with names that no metric uses, each once")
        labels[match[1]] = match[2].strip()
    return tuple(labels.items())


def _parse_log_levels(key: Key, plain: str, where: str) -> tuple[str, ...]:
    levels = []
    for part in (piece.strip() for piece in plain.split(";")):
        if not part:
            continue
        name, equals, level = part.rpartition("=")
        if level.strip().upper() not in _LOG_LEVELS or (equals and _PART.fullmatch(name.strip()) is None):
            raise _wrong(key, plain, where, "levels such as INFO or INFO;store=DEBUG")
        levels.append(f"{name.strip()}{equals}{level.strip().upper()}")
    return tuple(levels)


def _wrong(key: Key, plain: str, where: str, wanted: str) -> ConfigurationError:
    return ConfigurationError(f"{where}: {key.key} = {plain!r} is not allowed", remedy=f"give {wanted}")
