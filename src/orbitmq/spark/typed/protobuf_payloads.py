"""Protobuf bodies as columns, and back, by `protobuf` and a descriptor set.

    protoc --include_imports --descriptor_set_out=orders.pb orders.proto

Rules of this file
1. A field that has no presence (`int32 n = 1` in proto3) cannot be missing: it is zero. `optional` ones, messages and wrappers are null
   where they are not set.
2. An enum is its name, and a number that has none is that number in text; `uint64` is a decimal, `uint32` a bigint; Timestamp and the
   wrappers of Google are what they stand for.
3. Definitions are in a pool of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import PAYLOAD_DEPTH_MAX, PAYLOAD_FIELDS_MAX
from orbitmq.spark.typed.decoded import Decoded, OneDecoded, of_dicts, reason_of, row_by_row
from orbitmq.spark.typed.fitting import no_field
from orbitmq.spark.typed.framing import message_path, schema_id_of

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_PLAIN: Final = {
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(), FieldDescriptor.CPPTYPE_INT32: pa.int32(), FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(), FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(), FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(), FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}  # fmt: skip
_TIME: Final = pa.timestamp("us", tz="UTC")
_SECONDS_MIN: Final = -62_135_596_800
_SECONDS_MAX: Final = 253_402_300_799
"""The first and the last second that a Timestamp may have, of the years 1 and 9999."""


def message_class(descriptor_set: bytes, name: str) -> Any:
    """The class of a message. `ConfigurationError`."""
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
        for one in files.file:
            pool.Add(one)
        descriptor = pool.FindMessageTypeByName(name)
    except (DecodeError, TypeError) as problem:
        raise ConfigurationError(
            f"option payloadSchema: the descriptor set cannot be read: {reason_of(problem)}",
            remedy="make it with protoc --include_imports --descriptor_set_out=orders.pb orders.proto",
        ) from problem
    except KeyError as problem:
        known = [f"{one.package}.{message.name}".lstrip(".") for one in files.file for message in one.message_type]
        raise ConfigurationError(
            f"option payloadMessage: the descriptor set has no message {name!r}",
            remedy=f"it has {', '.join(known[:100])}",
        ) from problem
    return message_factory.GetMessageClass(descriptor)


def protobuf_type(descriptor: Any, wanted: Any = None) -> Any:
    """The Arrow type of a message; only the fields of `wanted` where it is given. `ConfigurationError`."""
    return _MessageTypes().message(descriptor, wanted, "payload", ())


class _MessageTypes:
    def __init__(self) -> None:
        self._fields = 0

    def message(self, descriptor: Any, wanted: Any, path: str, above: tuple[str, ...]) -> Any:
        narrow = wanted is not None and pa.types.is_struct(wanted)
        name = descriptor.full_name
        if (not narrow and name in above) or len(above) > PAYLOAD_DEPTH_MAX:
            raise ConfigurationError(
                f"the Protobuf message is recursive: {path} is a {name} inside of itself",
                remedy="name the fields that you read in a schema of your own, as deep as you need them",
            )
        self._fields += 0 if narrow else len(descriptor.fields)
        if self._fields > PAYLOAD_FIELDS_MAX:  # messages that are used twice at each of thirty levels would never end
            raise ConfigurationError(
                f"the Protobuf message has more than {PAYLOAD_FIELDS_MAX} fields",
                remedy="name the fields that you read in a schema of your own",
            )
        found = []
        for field in wanted if narrow else descriptor.fields:
            one = descriptor.fields_by_name.get(field.name)
            inside = f"{path}.{field.name}"
            if one is None:
                raise no_field(inside, f"the Protobuf message {name}", [each.name for each in descriptor.fields])
            found.append(pa.field(field.name, self._field(one, field.type if narrow else None, inside, (*above, name))))
        return pa.struct(found)

    def _field(self, field: Any, wanted: Any, path: str, above: tuple[str, ...]) -> Any:
        if _is_map(field):
            if field.message_type.fields_by_name["key"].cpp_type != FieldDescriptor.CPPTYPE_STRING:
                raise ConfigurationError(
                    f"{path} is a map whose keys are no strings", remedy="leave it out of your schema"
                )
            inner = wanted.item_type if wanted is not None and pa.types.is_map(wanted) else None
            return pa.map_(pa.string(), self._one(field.message_type.fields_by_name["value"], inner, path, above))
        if field.is_repeated:
            inner = wanted.value_type if wanted is not None and pa.types.is_list(wanted) else None
            return pa.list_(self._one(field, inner, path, above))
        return self._one(field, wanted, path, above)

    def _one(self, field: Any, wanted: Any, path: str, above: tuple[str, ...]) -> Any:
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
        if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
            return _PLAIN[field.cpp_type]
        if field.message_type.full_name == _TIMESTAMP:
            return _TIME
        if field.message_type.full_name in _WRAPPERS:
            return self._one(field.message_type.fields_by_name["value"], None, path, above)
        return self.message(field.message_type, wanted, path, above)


def _is_map(field: Any) -> bool:
    return bool(field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry)


class ProtobufDecoder:
    """Decodes messages into `kind`, a struct."""

    def __init__(self, kind: Any, message: Any, *, framed: bool) -> None:
        self._kind = kind
        self._message = message
        self._path = _path_of(message.DESCRIPTOR) if framed else None
        self._values = _message_reader(message.DESCRIPTOR, kind)

    def decode(self, bodies: Any) -> Decoded:
        return row_by_row(bodies, self._read, self._kind, of_dicts(self._kind, self._kind))

    def _read(self, body: bytes) -> OneDecoded:
        try:
            return self._values(self._message.FromString(body if self._path is None else self._unframed(body))), None
        except (DecodeError, ValueError) as problem:
            return None, reason_of(problem)

    def _unframed(self, body: bytes) -> bytes:
        schema_id_of(body)
        path, at = message_path(body)
        if path != self._path:
            raise ValueError(
                f"it is message {path} of its file, and {self._message.DESCRIPTOR.full_name} is {self._path}"
            )
        return body[at:]


def _path_of(descriptor: Any) -> list[int]:
    if descriptor.containing_type is not None:
        siblings = list(descriptor.containing_type.nested_types)
        return [*_path_of(descriptor.containing_type), siblings.index(descriptor)]
    return [list(descriptor.file.message_types_by_name.values()).index(descriptor)]


Reader = Callable[[Any], Any]


def _message_reader(descriptor: Any, kind: Any) -> Reader:
    fields = [(field.name, _field_reader(descriptor.fields_by_name[field.name], field.type)) for field in kind]
    return lambda message: {name: read(message) for name, read in fields}


def _field_reader(field: Any, kind: Any) -> Reader:
    """Reads one field of a message that has it, by its name."""
    name = field.name
    if _is_map(field):
        one = _value_reader(field.message_type.fields_by_name["value"], kind.item_type)
        return lambda message: {key: one(value) for key, value in getattr(message, name).items()}
    if field.is_repeated:
        one = _value_reader(field, kind.value_type)
        return lambda message: [one(value) for value in getattr(message, name)]
    one = _value_reader(field, kind)
    if field.has_presence:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    return lambda message: one(getattr(message, name))


def _value_reader(field: Any, kind: Any) -> Reader:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value))
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return Decimal
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return _instant_us
        if field.message_type.full_name in _WRAPPERS:
            one = _value_reader(field.message_type.fields_by_name["value"], kind)
            return lambda value: one(value.value)
        return _message_reader(field.message_type, kind)
    return lambda value: value


def _instant_us(value: Any) -> int:
    """Microseconds since 1970. `ValueError` for what no Timestamp may be, and no calendar has."""
    if not (_SECONDS_MIN <= value.seconds <= _SECONDS_MAX and 0 <= value.nanos < 1_000_000_000):
        raise ValueError(f"a Timestamp of {value.seconds} s and {value.nanos} ns is not in the years 1 to 9999")
    return int(value.seconds) * 1_000_000 + int(value.nanos) // 1_000


class ProtobufEncoder:
    """Makes bodies of payloads."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def encode(self, value: Any) -> bytes:
        message = self._message()
        _fill(message, value)
        return bytes(message.SerializeToString(deterministic=True))


def _fill(message: Any, values: dict[str, Any]) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        field = fields[name]
        if value is None:
            continue
        if _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            target = getattr(message, name)
            for key, one in value.items():
                if entry.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                    _fill_one(target[key], entry, one)
                else:
                    target[key] = _plain(entry, one)
        elif field.is_repeated:
            if None in value:
                raise ValueError(f"field {name!r}: Protobuf has no null in a list")
            target = getattr(message, name)
            for one in value:
                if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                    _fill_one(target.add(), field, one)
                else:
                    target.append(_plain(field, one))
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            target = getattr(message, name)
            target.SetInParent()
            _fill_one(target, field, value)
        else:
            setattr(message, name, _plain(field, value))


def _fill_one(target: Any, field: Any, value: Any) -> None:
    name = field.message_type.full_name
    if name == _TIMESTAMP:
        target.FromDatetime(value)
    elif name in _WRAPPERS:
        target.value = _plain(field.message_type.fields_by_name["value"], value)
    else:
        _fill(target, value)


def _plain(field: Any, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        number = field.enum_type.values_by_name.get(value)
        if number is None:
            raise ValueError(f"field {field.name!r}: {value!r} is none of {', '.join(field.enum_type.values_by_name)}")
        return number.number
    return int(value) if isinstance(value, Decimal) else value
