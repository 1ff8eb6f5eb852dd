"""Patterns of client addresses, as white lists of RocketMQ 4 write them.

    (nothing)              no address
    *                      every address; *.*.*.* and *:*:*:*:*:*:*:* too
    192.168.0.7            one address, IPv4 or IPv6
    10.0.0.1,10.0.0.2      any of these addresses
    192.168.0.{7,8}        any of these last fields
    192.168.*.*            fields that may be anything ...
    192.168.0.1-20         ... or between two numbers, the first field excepted
    2001:db8:*             IPv6: all that follows may be anything
    2001:db8::1-ff:*       IPv6: one group between two hexadecimal numbers, and nothing but * behind it

Rules of this file
1. A pattern never lets in an address that RocketMQ 4.9.8 keeps out. It is narrower in two places: each field counts, where RocketMQ
   ignores those behind the first range or *; and :: stands for groups of zeros before a * as well.
2. IPv4 addresses inside IPv6 ones (::ffff:10.0.0.1) are those IPv4 addresses.

(RocketMQ broker: ACL in 4.x.)
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

Fields = tuple[int, ...]
"""Four numbers of an IPv4 address, eight of an IPv6 address; empty: not an address."""

_EVERYWHERE: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_DECIMAL: Final = re.compile("0|[1-9][0-9]{0,2}", re.ASCII)
_HEXADECIMAL: Final = re.compile("[0-9a-fA-F]{1,4}", re.ASCII)


class AddressPattern(NamedTuple):
    """`choices`: lowest and highest number of each field, for each way to match."""

    text: str
    everywhere: bool
    choices: tuple[tuple[tuple[int, int], ...], ...]

    def matches(self, fields: Fields) -> bool:
        if self.everywhere:
            return True
        return any(
            len(choice) == len(fields)
            and all(low <= field <= high for field, (low, high) in zip(fields, choice, strict=True))
            for choice in self.choices
        )


def address_fields(text: str) -> Fields:
    """The numbers of an address; empty for text that is none, a host name for example."""
    try:
        return _fields(ip_address(text))
    except ValueError:
        return ()


def read_address_pattern(text: str) -> AddressPattern:
    """ValueError, with the place inside the pattern, for one that is malformed."""
    stripped = text.strip()
    if not stripped or stripped in _EVERYWHERE:
        return AddressPattern(stripped, bool(stripped), ())
    if stripped.endswith("}"):
        start, brace, last = stripped.rpartition("{")
        if not brace or not start.endswith((".", ":")):
            raise ValueError(f"address pattern {text!r}: a set in braces stands for the last field only")
        addresses = [start + one.strip() for one in last[:-1].split(",")]
    elif "," in stripped:
        addresses = [one.strip() for one in stripped.split(",")]
    elif "*" in stripped or "-" in stripped:
        choice = _wide_ipv6(stripped) if ":" in stripped else _wide_ipv4(stripped)
        return AddressPattern(stripped, False, (choice,))
    else:
        addresses = [stripped]
    return AddressPattern(stripped, False, tuple(_exact(text, address) for address in addresses))


def _fields(address: IPv4Address | IPv6Address) -> Fields:
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is None:
            packed = address.packed
            return tuple(packed[at] << 8 | packed[at + 1] for at in range(0, 16, 2))
        address = mapped
    return tuple(address.packed)


def _exact(text: str, address: str) -> tuple[tuple[int, int], ...]:
    fields = () if "%" in address else address_fields(address)
    if not fields:
        raise ValueError(f"address pattern {text!r}: {address!r} is no address; ranges and * cannot stand in lists")
    return tuple((field, field) for field in fields)


def _wide_ipv4(text: str) -> tuple[tuple[int, int], ...]:
    fields = [field.strip() for field in text.split(".")]
    if len(fields) != 4:
        raise ValueError(f"address pattern {text!r} has {len(fields)} fields, an IPv4 address has 4")
    if not _DECIMAL.fullmatch(fields[0]):
        raise ValueError(f"address pattern {text!r}: field 1 must be a number")
    return tuple(_range(text, at, field, 255) for at, field in enumerate(fields, 1))


def _wide_ipv6(text: str) -> tuple[tuple[int, int], ...]:
    head, double, tail = text.partition("::")
    before, after = (part.split(":") if part else [] for part in (head, tail))
    missing = 8 - len(before) - len(after)
    if "::" in tail or missing < bool(double):
        raise ValueError(f"address pattern {text!r} has too many groups, an IPv6 address has 8")
    groups = [*before, *(["0" if double else "*"] * missing), *after]
    if not double and missing and before[-1] != "*":
        raise ValueError(
            f"address pattern {text!r} has {len(before)} groups, an IPv6 address has 8; a * at the end stands for all others"
        )
    wide = next(at for at, group in enumerate(groups) if not _HEXADECIMAL.fullmatch(group))
    if wide == 0 or any(group != "*" for group in groups[wide + 1 :]):
        raise ValueError(
            f"address pattern {text!r}: a range or * stands behind the first group, and nothing but * behind it"
        )
    return tuple(_range(text, at, group, 0xFFFF) for at, group in enumerate(groups, 1))


def _range(text: str, at: int, field: str, highest: int) -> tuple[int, int]:
    """Lowest and highest number that a field allows."""
    if field == "*":
        return 0, highest
    number, base = (_DECIMAL, 10) if highest == 255 else (_HEXADECIMAL, 16)
    low_text, dash, high_text = (part.strip() for part in field.partition("-"))
    if not number.fullmatch(low_text) or (dash and not number.fullmatch(high_text)):
        raise ValueError(f"address pattern {text!r}: field {at} is neither a number, a range of two, nor *")
    low = int(low_text, base)
    high = int(high_text, base) if dash else low
    if not low <= high <= highest:
        raise ValueError(f"address pattern {text!r}: field {at} must go up, and not above {highest}")
    return low, high
