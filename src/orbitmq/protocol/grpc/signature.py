"""Signatures of gRPC calls: who calls, proven by an HMAC-SHA1 over the date of the call.

The field `authorization` is `MQv2-HMAC-SHA1 Credential=<access key>/<region>/<service>, SignedHeaders=x-mq-date-time,
Signature=<hex>`. The algorithm and the signed fields are named, not chosen: other words change nothing. The date is opaque, so a call that
somebody has overheard can be sent again: TLS is what stops that.

Rules of this file
1. Nothing of the field stands in an error.

Source: RocketMQ gRPC, signature scheme.
"""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.errors import ProtocolError


class CallSignature(NamedTuple):
    """Who a caller says to be, and the proof."""

    access_key: str
    digest: bytes


def read_authorization(field: bytes) -> CallSignature:
    """What the field says. Raises ProtocolError when it is none, names nobody or has no signature in hex."""
    _, _, pairs = str(field, "utf-8", "replace").partition(" ")
    values: dict[str, str] = {}
    for pair in pairs.split(","):
        name, _, value = pair.strip().partition("=")
        values[name] = value
    access_key = values.get("Credential", "").partition("/")[0]
    if not access_key:
        raise ProtocolError("the field authorization names no access key")
    try:
        return CallSignature(access_key, bytes.fromhex(values["Signature"]))
    except (KeyError, ValueError):
        raise ProtocolError("the field authorization has no signature in hexadecimal") from None
