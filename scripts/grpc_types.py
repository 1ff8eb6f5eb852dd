"""Write messages.pyi, the types of the gRPC messages, from messages.proto; with --check only compare.

Run from the repository's root: `python scripts/grpc_types.py [--check]`. Exit code 1 when the file is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from generated_pages import write_or_compare
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

from orbitmq.protocol.grpc.definitions import read_definitions
from orbitmq.protocol.grpc.messages import DEFINITIONS

HEAD: Final = '''\
"""Types of `messages.py`. This file is generated from messages.proto by `python scripts/grpc_types.py`."""

from abc import ABCMeta
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence
from enum import IntEnum
from pathlib import Path
from typing import Self, TypeVar

DEFINITIONS: Path

class GrpcMessage:
    """What every message can do."""

    @classmethod
    def FromString(cls, data: bytes, /) -> Self: ...
    def SerializeToString(self) -> bytes: ...
    def ByteSize(self) -> int: ...
    def CopyFrom(self, other: Self, /) -> None: ...
    def MergeFrom(self, other: Self, /) -> None: ...
    def HasField(self, field_name: str, /) -> bool: ...
    def ClearField(self, field_name: str, /) -> None: ...
    def WhichOneof(self, oneof_group: str, /) -> str | None: ...

_M = TypeVar("_M", bound=GrpcMessage)

class MessageList(MutableSequence[_M], metaclass=ABCMeta):
    """Messages in a repeated field."""

    def add(self, **fields: object) -> _M: ...

class Duration(GrpcMessage):
    def __init__(self, *, seconds: int = ..., nanos: int = ...) -> None: ...
    seconds: int
    nanos: int

class Timestamp(GrpcMessage):
    def __init__(self, *, seconds: int = ..., nanos: int = ...) -> None: ...
    seconds: int
    nanos: int
'''

_SCALARS: Final = {
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_ENUM: "int",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT32: "int",
    FieldDescriptorProto.TYPE_INT64: "int",
    FieldDescriptorProto.TYPE_STRING: "str",
}


def _enum_lines(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"class {enum.name}(IntEnum):"
    for value in enum.value:
        yield f"    {value.name} = {value.number}"


def _field_types(field: FieldDescriptorProto, maps: frozenset[str]) -> tuple[str, str]:
    """The type of the argument and that of the attribute."""
    kind = _SCALARS.get(field.type) or field.type_name.rpartition(".")[2]
    if kind in maps:
        return "Mapping[str, str]", "MutableMapping[str, str]"
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        many = "MessageList" if field.type == FieldDescriptorProto.TYPE_MESSAGE else "MutableSequence"
        return f"Iterable[{kind}]", f"{many}[{kind}]"
    return kind, kind


def _message_lines(message: DescriptorProto) -> Iterator[str]:
    maps = frozenset(nested.name for nested in message.nested_type)
    typed = [(field.name, *_field_types(field, maps)) for field in message.field]
    yield f"class {message.name}(GrpcMessage):"
    yield "    def __init__("
    yield "        self,"
    yield "        *,"
    for name, argument, _ in typed:
        yield f"        {name}: {argument} | None = ...,"
    yield "    ) -> None: ..."
    for name, _, attribute in typed:
        # Messages in a field are written into, never replaced.
        is_read_only = attribute[0].isupper()
        if is_read_only:
            yield "    @property"
            yield f"    def {name}(self) -> {attribute}: ..."
        else:
            yield f"    {name}: {attribute}"


def types_page() -> str:
    file = read_definitions(DEFINITIONS.read_text(encoding="utf-8"))
    parts = [_enum_lines(enum) for enum in file.enum_type] + [_message_lines(message) for message in file.message_type]
    return HEAD + "".join("\n" + "\n".join(lines) + "\n" for lines in parts)


if __name__ == "__main__":
    sys.exit(write_or_compare({DEFINITIONS.with_suffix(".pyi"): types_page()}, sys.argv[1:], __file__))
