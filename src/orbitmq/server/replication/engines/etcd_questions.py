"""What etcd's JSON gateway is asked, as bodies of requests: pure.

Rules of this file
1. Keys and values are base64, numbers of 64 bits are texts, as the gateway has them. Names are those of etcd's `rpc.proto`.
2. Every question does no harm when it is asked twice: a change names the revision that it is made to, and is none when that is gone; a
   lease too many ends by itself.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Final

import msgspec

from orbitmq.limits.engine import ENGINE_PLACES_MAX, PRESENCE_TTL_S

RANGE: Final = "/v3/kv/range"
TXN: Final = "/v3/kv/txn"
PUT: Final = "/v3/kv/put"
GRANT: Final = "/v3/lease/grant"
KEEP_ALIVE: Final = "/v3/lease/keepalive"
REVOKE: Final = "/v3/lease/revoke"
WATCH: Final = "/v3/watch"
AUTHENTICATE: Final = "/v3/auth/authenticate"
STATUS: Final = "/v3/maintenance/status"


def read_key(key: str) -> bytes:
    """Of all members of etcd that are needed, and no cache."""
    return _body({"key": _base64(key), "serializable": False})


def read_below(start: str) -> bytes:
    """All keys that begin so, some more than a group can have at most."""
    return _body({**_below(start), "limit": str(ENGINE_PLACES_MAX), "serializable": False})


def compare_and_put(key: str, revision: int, before: bytes, value: bytes) -> bytes:
    """Put where the key has this revision and what was read with it; then, or where not, read it. Revision 0: where there is none.

    The value is compared too: an engine that was put back to a backup gives revisions a second time."""
    compare = [{"key": _base64(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}]
    if revision:
        compare.append({"key": _base64(key), "target": "VALUE", "result": "EQUAL", "value": _base64(before)})
    put = {"request_put": {"key": _base64(key), "value": _base64(value)}}
    read = {"request_range": {"key": _base64(key)}}
    return _body({"compare": compare, "success": [put, read], "failure": [read]})


def put_under_lease(key: str, value: bytes, lease: str) -> bytes:
    return _body({"key": _base64(key), "value": _base64(value), "lease": lease})


def grant_lease() -> bytes:
    return _body({"TTL": str(PRESENCE_TTL_S)})


def of_lease(lease: str) -> bytes:
    """To renew it, or to end it."""
    return _body({"ID": lease})


def watch_below(start: str) -> bytes:
    return _body({"create_request": _below(start)})


def authenticate(user: str, password: str) -> bytes:
    return _body({"name": user, "password": password})


def _below(start: str) -> dict[str, str]:
    """All keys that begin with it: the end of such a range is the next text of this length."""
    end = start[:-1] + chr(ord(start[-1]) + 1)
    return {"key": _base64(start), "range_end": _base64(end)}


def _base64(text: str | bytes) -> str:
    return b64encode(text.encode() if isinstance(text, str) else text).decode("ascii")


def _body(question: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(question)
