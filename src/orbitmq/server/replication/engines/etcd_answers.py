"""What etcd's JSON gateway answers, and whether it can be believed: pure.

Rules of this file
1. An answer is read whole, or raises EtcdAnswerError, which says what was wrong with it; nothing else leaves this file.
2. What a body says beyond what is known here is passed over: releases differ in that.
3. An etcd that has another cluster id than before, or a lower revision than had been seen when it was asked, is another one or was put
   back to a backup: its answer is not believed.
4. Revisions of leases are not compared: a member of etcd answers there with its own, which may lag behind.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.limits.engine import ENGINE_TOKEN_CHARS_MAX

WHY_CHARS: Final = 200
"""Of what an engine said that is repeated in a message."""

WRONG_PASSWORD: Final = "authentication failed"
UNAUTHENTICATED: Final = 16
PERMISSION_DENIED: Final = 7
ANOTHER: Final = (
    "it was put back to a backup, or the address leads to another one: see what runs there; with what was written since lost, stop all "
    "members of its groups, and say with accept-loss which has the log that counts"
)
STALE_TOKENS: Final = (
    "user name is empty",
    "invalid auth token",
    "revision of auth store is old",
    "revision in header is old",
)
"""Texts by which etcd's releases ask for a new token, with several codes."""


class EtcdAnswerError(ProtocolError):
    """No answer that can be believed. `wants_token`: who asks has to say who it is, again."""

    def __init__(self, why: str, *, remedy: str | None = None, wants_token: bool = False) -> None:
        super().__init__(why, remedy=remedy)
        self.why = why
        self.wants_token = wants_token


_Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}\Z")]
_Id = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}\Z")]
_LeaseId = Annotated[str, msgspec.Meta(pattern=r"^-?[0-9]{1,19}\Z")]


class EtcdHeader(msgspec.Struct, frozen=True):
    cluster_id: _Id
    revision: _Number = "0"


class EtcdPair(msgspec.Struct, frozen=True):
    key: str
    mod_revision: _Number
    value: str = ""


class EtcdAnswered(msgspec.Struct, frozen=True):
    """Any answer."""

    header: EtcdHeader


class EtcdStatus(EtcdAnswered, frozen=True, rename="camel"):
    """Of one member of etcd. `errors`: alarms, and that it has no leader."""

    version: str = "of an unknown release"
    db_size: _Number = "0"
    errors: list[str] = []


class EtcdRange(EtcdAnswered, frozen=True):
    kvs: list[EtcdPair] = []


class EtcdOperation(msgspec.Struct, frozen=True):
    """One of a transaction; its own header says no cluster."""

    response_range: EtcdRead | None = None


class EtcdRead(msgspec.Struct, frozen=True):
    kvs: list[EtcdPair] = []


class EtcdTxn(EtcdAnswered, frozen=True):
    succeeded: bool = False
    responses: list[EtcdOperation] = []


class EtcdLease(EtcdAnswered, frozen=True):
    """Without a TTL, and with none that is above 0, there is no such lease."""

    id: _LeaseId = msgspec.field(name="ID")
    ttl: Annotated[str, msgspec.Meta(pattern=r"^-?[0-9]{1,19}\Z")] = msgspec.field(name="TTL", default="0")

    @property
    def lives(self) -> bool:
        return int(self.ttl) > 0


class EtcdToken(EtcdAnswered, frozen=True):
    token: Annotated[str, msgspec.Meta(pattern=r"^[!-~]+\Z", max_length=ENGINE_TOKEN_CHARS_MAX)]


class EtcdWatched(EtcdAnswered, frozen=True):
    canceled: bool = False
    cancel_reason: str = ""


_Answer = TypeVar("_Answer", bound=EtcdAnswered)


class _Streamed(msgspec.Struct, frozen=True):
    result: msgspec.Raw = msgspec.Raw()
    error: Any = None


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""
    error: str = ""
    code: int = 0


class KeptValue(NamedTuple):
    """What lies under a key, and the revision of its last change. No value and revision 0: nothing."""

    revision: int
    value: bytes | None


def read_answer(kind: type[_Answer], status: int, body: bytes) -> _Answer:
    if status != 200:
        raise _refused(status, body)
    return _decoded(kind, body)


def read_streamed(kind: type[_Answer], status: int, body: bytes) -> _Answer:
    """The first message of an answer that could have several."""
    if status != 200:
        raise _refused(status, body)
    line = body.partition(b"\n")[0]
    streamed = _decoded(_Streamed, line)
    if result := bytes(streamed.result):
        return _decoded(kind, result)
    raise _refused(status, msgspec.json.encode(streamed.error))


def one_value(key: str, pairs: list[EtcdPair], header: EtcdHeader) -> KeptValue:
    """`header`: of the answer that they came in."""
    if not pairs:
        return KeptValue(0, None)
    values = values_of(pairs)
    if list(values) != [key]:
        raise EtcdAnswerError(f"it answered with {', '.join(values)[:WHY_CHARS]} when it was asked for {key}")
    if not 0 < values[key].revision <= int(header.revision):
        raise EtcdAnswerError(f"its revision is {header.revision}, and that of {key} {values[key].revision}")
    return values[key]


def values_of(pairs: list[EtcdPair]) -> dict[str, KeptValue]:
    try:
        return {
            b64decode(pair.key, validate=True).decode(): KeptValue(
                int(pair.mod_revision), b64decode(pair.value, validate=True)
            )
            for pair in pairs
        }
    except (binascii.Error, ValueError) as error:
        raise EtcdAnswerError(f"what it answered is no key and value: {error}") from error


def read_in_txn(key: str, answer: EtcdTxn) -> KeptValue:
    """What it read last."""
    reads = [one.response_range for one in answer.responses if one.response_range is not None]
    if len(reads) != 1:
        raise EtcdAnswerError(f"it answered a transaction with {len(reads)} reads instead of one")
    return one_value(key, reads[0].kvs, answer.header)


class Belief:
    """What was seen of an etcd: its cluster id, and the highest revision."""

    __slots__ = ("cluster_id", "revision")

    def __init__(self) -> None:
        self.cluster_id = ""
        self.revision = 0

    def same_cluster(self, header: EtcdHeader) -> None:
        """Raises EtcdAnswerError."""
        if header.cluster_id != (self.cluster_id or header.cluster_id):
            raise EtcdAnswerError(
                f"its cluster id is {header.cluster_id}, and was {self.cluster_id}: this is another etcd",
                remedy=ANOTHER,
            )
        self.cluster_id = header.cluster_id

    def not_older(self, header: EtcdHeader, seen: int) -> None:
        """`seen`: the revision when it was asked. Raises EtcdAnswerError."""
        revision = int(header.revision)
        if revision < max(seen, 1):
            raise EtcdAnswerError(f"its revision is {revision}, and was {seen}: it has gone back", remedy=ANOTHER)
        self.revision = max(self.revision, revision)


def _refused(status: int, body: bytes) -> EtcdAnswerError:
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except (ValueError, RecursionError):  # MsgspecError and UnicodeDecodeError are ValueErrors
        refusal = _Refusal()
    said = (refusal.message or refusal.error)[:WHY_CHARS]
    if 300 <= status < 400:
        return EtcdAnswerError(f"HTTP {status}, another address, which is not followed", remedy="name etcd itself")
    if not said:
        return EtcdAnswerError(f"HTTP {status} with nothing that etcd would say", remedy="see what listens there")
    wants_token = refusal.code == UNAUTHENTICATED or status == 401 or any(text in said for text in STALE_TOKENS)
    remedy = None
    if wants_token or WRONG_PASSWORD in said or "authentication is not enabled" in said:
        remedy = "compare the user in replicationEngine and the password in replicationEnginePasswordFile with etcd's"
    elif refusal.code == PERMISSION_DENIED or "permission denied" in said:
        remedy = "give the user a role in etcd that reads and writes all keys below the prefix"
    elif "database space exceeded" in said:
        remedy = "etcd's disk quota is used up: compact, defragment and disarm the alarm there"
    return EtcdAnswerError(said, remedy=remedy, wants_token=wants_token)


_Decoded = TypeVar("_Decoded", bound=msgspec.Struct)


def _decoded(kind: type[_Decoded], body: bytes) -> _Decoded:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise EtcdAnswerError(
            f"its answer is none of etcd's: {str(error)[:WHY_CHARS]}", remedy="see what listens there"
        ) from error
