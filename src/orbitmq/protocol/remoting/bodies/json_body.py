"""What all JSON bodies share: tolerant reading, exact writing, and the message queue as a map key.

Rules of this package
1. A body is a struct whose members have the protocol's names in camel case. Members unknown to it are ignored.
2. Members that Java writes always have a default made by `kept`: written even when they have that value. Members
   whose default is None are absent on the wire when they are None, as Java drops nulls.
3. Reading first tries strict JSON with the right types, then the dialect, then once more without nulls and with
   what a body's `adapt` knows of clients that write it differently. What fails then is a ProtocolError.
4. Numbers may arrive as text. They have Java's ranges: what does not fit is refused.

(RocketMQ remoting, body catalogue.)
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self, TypeVar

import msgspec

from orbitmq.errors import ProtocolError
from orbitmq.protocol.remoting import fastjson
from orbitmq.protocol.remoting.frame import Buffer

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]

_T = TypeVar("_T")

_decoders: dict[type[JsonBody], msgspec.json.Decoder[Any]] = {}


def kept(value: _T) -> _T:
    """Default for a member that is written even when it has this value. `value` is immutable."""
    return msgspec.field(default_factory=lambda: value)


def _new_list() -> list[Any]:
    return []  # a function of our own: msgspec omits an empty list whose default factory is `list` itself


def _new_map() -> dict[Any, Any]:
    return {}


def kept_list(name: str | None = None) -> Any:
    """Default for a list that is written even when it is empty; `name` where camel case does not give it."""
    return msgspec.field(default_factory=_new_list, name=name)


def kept_map() -> Any:
    """Default for a map that is written even when it is empty."""
    return msgspec.field(default_factory=_new_map)


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """One queue of a topic on one broker; also the key of maps. Sorted as Java sorts it."""

    topic: str
    broker_name: str
    queue_id: Int32

    @classmethod
    def of(cls, members: Any) -> MessageQueue:
        """The queue that an object used as a map key describes; msgspec.ValidationError when it describes none."""
        return msgspec.convert(members, MessageQueue, strict=False)


class JsonBody(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Base of all bodies."""

    queue_keys: ClassVar[bool] = False
    """True when maps keyed by `MessageQueue` occur: text keys that hold an object are then read as that object."""

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        """The body in `data`; ProtocolError when it is none."""
        raw = bytes(data)
        if b"$ref" not in raw:
            decoder = _decoders.get(cls)
            if decoder is None:
                decoder = _decoders[cls] = msgspec.json.Decoder(cls, strict=False)
            try:
                return decoder.decode(raw)  # type: ignore[no-any-return]
            except (msgspec.DecodeError, UnicodeError, RecursionError):
                pass  # the dialect, or a client with its own ways; read below, which also reports what is wrong
        return cls.from_value(
            fastjson.loads(raw, object_key=MessageQueue.of, quoted_objects=cls.queue_keys),
        )

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """The body that parsed JSON stands for; ProtocolError when it does not fit."""
        try:
            return msgspec.convert(value, cls, strict=False, str_keys=True)
        except (msgspec.ValidationError, RecursionError):
            pass  # once more below, without nulls and with the ways of other clients
        try:
            return msgspec.convert(cls.adapt(_without_nulls(value)), cls, strict=False, str_keys=True)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ProtocolError(f"body is no {cls.__name__}: {error}") from error

    @classmethod
    def adapt(cls, value: Any) -> Any:
        """`value` (a copy, to be changed freely) in the form that official clients write."""
        return value

    def encode(self) -> bytes:
        """The body as JSON that every Java peer reads."""
        return fastjson.dumps(self)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value if item is not None]
    return value
