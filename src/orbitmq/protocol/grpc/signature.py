"""Signatures of gRPC calls: who calls, proven by an HMAC-SHA1 over the date of the call.

The field `authorization` is `MQv2-HMAC-SHA1 Credential=<access key>/<region>/<service>, SignedHeaders=x-mq-date-time,
Signature=<hex>`. The algorithm and the signed fields are named, not chosen: other words change nothing. The date is opaque, so a call that
somebody has overheard can be sent again: TLS is what stops that.

Rules of this file
1. No signature stands in a log: what is none is one that is never right, and no error.

Source: RocketMQ gRPC, signature scheme.
"""

from __future__ import annotations

from typing import NamedTuple


class CallSignature(NamedTuple):
    """Who a caller says to be, and the proof, which is empty where none is given in hexadecimal."""

    access_key: str
    digest: bytes

    def __repr__(self) -> str:
        return f"CallSignature({self.access_key!r})"


def read_authorization(field: bytes | None) -> CallSignature | None:
    """What the field says; None where it names nobody, or is missing. Cost: 1 us."""
    if field is None:
        return None
    _, _, pairs = str(field, "utf-8", "replace").partition(" ")
    values: dict[str, str] = {}
    for pair in pairs.split(","):
        name, _, value = pair.strip().partition("=")
        values[name] = value
    access_key = values.get("Credential", "").partition("/")[0]
    if not access_key:
        return None
    try:
        return CallSignature(access_key, bytes.fromhex(values.get("Signature", "")))
    except ValueError:
        return CallSignature(access_key, b"")
