"""The definitions of messages as protobuf wants them, read from `messages.proto`.

Rules of this file
1. It understands the part of the language that stands in that file, one declaration a line, and refuses every other line: a field that
   is not understood must not be missing.
"""

from __future__ import annotations

import re
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

FILE_NAME: Final = "orbitmq/protocol/grpc/messages.proto"

_SCALARS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "float": FieldDescriptorProto.TYPE_FLOAT,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
}
_TEXT_MAP: Final = "map<string, string>"

_SYNTAX: Final = re.compile(r'syntax = "(\w+)";')
_PACKAGE: Final = re.compile(r"package ([\w.]+);")
_IMPORT: Final = re.compile(r'import "([\w/.]+)";')
_BLOCK: Final = re.compile(r"(message|enum|oneof) (\w+) \{")
_VALUE: Final = re.compile(r"(\w+) = (\d+);")
_FIELD: Final = re.compile(r"(optional |repeated )?(map<string, string>|[\w.]+) (\w+) = (\d+);")


class DefinitionsReader:
    """Reads one file. `file` is what it says, once `read` has returned."""

    def __init__(self, text: str) -> None:
        self.file = FileDescriptorProto(name=FILE_NAME)
        self._lines = [line.partition("//")[0].strip() for line in text.splitlines()]
        self._enums = {match[2] for line in self._lines if (match := _BLOCK.fullmatch(line)) and match[1] == "enum"}
        self._open: list[Any] = []
        """The messages and enums around a line, the innermost last."""
        self._oneof = False

    def read(self) -> None:
        """ValueError for a line that is not understood."""
        for number, line in enumerate(self._lines, start=1):
            if line and not self._read_line(line):
                raise ValueError(f"line {number} of the definitions is not understood: {line}")
        for message in self.file.message_type:
            _add_oneofs_of_optional_fields(message)

    def _read_line(self, line: str) -> bool:
        if line == "}":
            if self._oneof:
                self._oneof = False
            else:
                self._open.pop()
            return True
        if match := _BLOCK.fullmatch(line):
            self._begin(match[1], match[2])
            return True
        if not self._open:
            return self._read_head(line)
        inner = self._open[-1]
        if isinstance(inner, EnumDescriptorProto):
            if match := _VALUE.fullmatch(line):
                inner.value.add(name=match[1], number=int(match[2]))
        elif match := _FIELD.fullmatch(line):
            self._add_field(inner, match)
        return match is not None

    def _read_head(self, line: str) -> bool:
        if match := _SYNTAX.fullmatch(line):
            self.file.syntax = match[1]
        elif match := _PACKAGE.fullmatch(line):
            self.file.package = match[1]
        elif match := _IMPORT.fullmatch(line):
            self.file.dependency.append(match[1])
        return match is not None

    def _begin(self, kind: str, name: str) -> None:
        outer = self._open[-1] if self._open else self.file
        if kind == "oneof":
            outer.oneof_decl.add(name=name)
            self._oneof = True
        elif kind == "enum":
            self._open.append(outer.enum_type.add(name=name))
        else:
            self._open.append((outer.nested_type if self._open else outer.message_type).add(name=name))

    def _add_field(self, message: DescriptorProto, match: re.Match[str]) -> None:
        label, kind, name, number = match.groups()
        field = message.field.add(name=name, number=int(number), label=FieldDescriptorProto.LABEL_OPTIONAL)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        elif kind == _TEXT_MAP:
            field.type_name = _add_entry(message, name)
            field.type, field.label = FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.LABEL_REPEATED
        else:
            field.type_name = kind
            field.type = FieldDescriptorProto.TYPE_ENUM if kind in self._enums else FieldDescriptorProto.TYPE_MESSAGE
        if label == "repeated ":
            field.label = FieldDescriptorProto.LABEL_REPEATED
        elif label:
            field.proto3_optional = True
        if self._oneof:
            field.oneof_index = len(message.oneof_decl) - 1


def _add_entry(message: DescriptorProto, field_name: str) -> str:
    """The message that the entries of a map are on the wire; answers its name."""
    name = field_name.title().replace("_", "") + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in enumerate(("key", "value"), start=1):
        entry.field.add(
            name=part, number=number, type=FieldDescriptorProto.TYPE_STRING, label=FieldDescriptorProto.LABEL_OPTIONAL
        )
    return name


def _add_oneofs_of_optional_fields(message: DescriptorProto) -> None:
    """To protobuf a field that may be absent is the only one of a oneof; these come behind the others."""
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def read_definitions(text: str) -> FileDescriptorProto:
    """What a file of definitions says. ValueError for a line that is not understood."""
    reader = DefinitionsReader(text)
    reader.read()
    return reader.file
