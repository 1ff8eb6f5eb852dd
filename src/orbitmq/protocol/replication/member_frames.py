"""Frames between members of a replicated group: a greeting, a hello that says who connects, then messages of the core.

    dialler -> acceptor   magic (8 bytes)
    acceptor -> dialler   magic, nonce (16 bytes)
    dialler -> acceptor   frames: int32 length of what follows the checksum, int32 CRC-32 of it, int8 kind, the rest in MessagePack

The first frame is the hello (kind 0). A connection carries messages of the one who made it, and nothing the other way: what the other one
has to say comes over a connection of its own. So each member finds out by itself whether it reaches another one.

Rules of this file
1. The length is judged before anything is kept, the checksum before anything is read, and what is read is of the type that the kind names,
   with nothing behind it.
2. Names have a bounded length, positions and epochs a range, the marks of a log rise. What does not is a ReplicationFrameError, and the
   connection is closed: nothing behind it can be read.
3. `proof` is an HMAC over the nonce and the hello with the secret that all members share, where callers have to prove who they are; empty
   where they do not. A nonce is good for its connection.
"""

from __future__ import annotations

import hmac
import struct
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from orbitmq.errors import ReplicationFrameError
from orbitmq.limits.group import MEMBER_FRAME_BYTES_MAX, MEMBER_HELLO_BYTES_MAX
from orbitmq.limits.replication import SLAVE_NAME_CHARS_MAX
from orbitmq.protocol.checksum import crc32
from orbitmq.protocol.replication.frames import POSITION_MAX

GROUP_MAGIC: Final = b"\xf0ORBGR\r\n"
"""As in PNG, the last two bytes do not survive a transport that changes ends of lines."""
NONCE_BYTES: Final = 16
GREETING_BYTES: Final = len(GROUP_MAGIC) + NONCE_BYTES
LINK_VERSION: Final = 2

_HEAD: Final = struct.Struct(">iI")
_KIND_BYTES: Final = 1
HELLO_KIND: Final = 0

EPOCH_MAX: Final = 2**31 - 1


class MemberHello(NamedTuple):
    """Who connects, and to whom it believes to connect. `store` is the id of its directory, `claim` its process by a name of its own."""

    version: int
    cluster: str
    group: str
    sender: str
    to: str
    store: str
    claim: str
    epoch: int
    proof: bytes = b""

    def proved(self, nonce: bytes, secret: str) -> MemberHello:
        """With the proof that its sender knows the secret."""
        return self._replace(proof=self._proof(nonce, secret))

    def is_proved(self, nonce: bytes, secret: str) -> bool:
        return hmac.compare_digest(self.proof, self._proof(nonce, secret))

    def _proof(self, nonce: bytes, secret: str) -> bytes:
        return hmac.digest(secret.encode(), nonce + _encode(self._replace(proof=b"")), "sha256")


def greeting(nonce: bytes) -> bytes:
    return GROUP_MAGIC + nonce


def read_greeting(data: bytes) -> bytes:
    """The nonce. ReplicationFrameError where another protocol is spoken there."""
    if len(data) != GREETING_BYTES or not data.startswith(GROUP_MAGIC):
        raise ReplicationFrameError("no member of a group answers there")
    return data[len(GROUP_MAGIC) :]


def encode_frame(kind: int, message: NamedTuple) -> bytes:
    body = bytes((kind,)) + _encode(message)
    if len(body) > MEMBER_FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(body)} bytes is longer than {MEMBER_FRAME_BYTES_MAX}")
    return _HEAD.pack(len(body), crc32(body)) + body


class FrameReader:
    """Reads the frames of one connection. `kinds` are the types of messages by their numbers."""

    __slots__ = ("_buffer", "_bytes_max", "_kinds")

    def __init__(self, kinds: dict[int, type[Any]]) -> None:
        self._buffer = bytearray()
        self._bytes_max = MEMBER_HELLO_BYTES_MAX
        known: dict[int, type[Any]] = {HELLO_KIND: MemberHello, **kinds}
        self._kinds = {kind: (_decoder(made), _ranges(made)) for kind, made in known.items()}

    def hello_came(self) -> None:
        """It is known who is there: from now on frames may be as long as records are."""
        self._bytes_max = MEMBER_FRAME_BYTES_MAX

    def receive(self, data: bytes) -> None:
        self._buffer += data

    def take(self) -> Any | None:
        """The next message, None while it has not come as a whole. Raises ReplicationFrameError."""
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None
        size, checksum = _HEAD.unpack_from(buffer)
        if not _KIND_BYTES <= size <= self._bytes_max:
            raise ReplicationFrameError(f"a frame announces {size} bytes, 1 to {self._bytes_max} are allowed")
        end = _HEAD.size + size
        if len(buffer) < end:
            return None
        body = bytes(memoryview(buffer)[_HEAD.size : end])
        del buffer[:end]
        if crc32(body) != checksum:
            raise ReplicationFrameError("the checksum of a frame does not fit")
        known = self._kinds.get(body[0])
        if known is None:
            raise ReplicationFrameError(f"a frame has the kind {body[0]}, which is none")
        try:
            message = known[0].decode(memoryview(body)[_KIND_BYTES:])
        except msgspec.DecodeError as error:
            raise ReplicationFrameError(f"a frame cannot be read: {error}") from error
        _check(message, known[1])
        return message


def _encode(message: NamedTuple) -> bytes:
    return msgspec.msgpack.encode(message)


def _decoder(made: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(made)


class _Ranges(NamedTuple):
    """What of a kind of message is looked at: places of its names, of its numbers with their bounds, and of its session."""

    names: tuple[int, ...]
    numbers: tuple[tuple[int, int], ...]
    session: int | None


def _ranges(made: type[Any]) -> _Ranges:
    fields = list(enumerate(get_type_hints(made).items()))
    names = tuple(at for at, (_, kind) in fields if kind is str)
    numbers = tuple((at, EPOCH_MAX if "epoch" in name else POSITION_MAX) for at, (name, kind) in fields if kind is int)
    return _Ranges(names, numbers, next((at for at, (name, _) in fields if name == "session"), None))


def _check(message: Any, ranges: _Ranges) -> None:
    """Every name, position, epoch and session that it has is in its range."""
    for at in ranges.names:
        if len(message[at]) > SLAVE_NAME_CHARS_MAX:
            raise ReplicationFrameError(f"{message._fields[at]} of a frame has {len(message[at])} characters")
    for at, bound in ranges.numbers:
        if not 0 <= message[at] <= bound:
            raise ReplicationFrameError(f"{message._fields[at]} of a frame is {message[at]}")
    if ranges.session is not None:
        life, number = message[ranges.session]
        if not (0 < len(life) <= SLAVE_NAME_CHARS_MAX and 0 <= number <= POSITION_MAX):
            raise ReplicationFrameError("the session of a frame is none")
