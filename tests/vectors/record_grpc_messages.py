"""Records what the stubs of RocketMQ's Python client make of every field and enum: `python -m tests.vectors.record_grpc_messages FOLDER`.

FOLDER is the unpacked wheel of `rocketmq-python-client`, whose stubs are imported without the client around them. A line of
`grpc/messages.jsonl` is the numbers of an enum, or a message with one field set by the rule of `one_field_each`, which ours follow in
the tests.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).resolve().parent / "grpc" / "messages.jsonl"


def _value(field: Any) -> Any:
    """Depends on the name and the kind of a field only."""
    if field.cpp_type == field.CPPTYPE_STRING:
        text = f"{field.full_name} \N{WHITE CHESS QUEEN}"
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.cpp_type == field.CPPTYPE_ENUM:
        return field.enum_type.values[-1].number
    if field.cpp_type == field.CPPTYPE_BOOL:
        return True
    return {field.CPPTYPE_FLOAT: 1.5, field.CPPTYPE_INT32: -7, field.CPPTYPE_INT64: 1 << 40}[field.cpp_type]


def _fill(message: Any, field: Any, depth: int) -> None:
    place = getattr(message, field.name)
    if field.message_type is None:
        if field.is_repeated:
            place.extend([_value(field)] * 2)
        else:
            setattr(message, field.name, _value(field))
    elif field.message_type.GetOptions().map_entry:
        place["key"] = field.full_name
    else:
        inner = place.add() if field.is_repeated else place
        inner.SetInParent()
        for each in field.message_type.fields[: 2 if depth else 0]:
            _fill(inner, each, depth - 1)


def one_field_each(kind: Any) -> Iterator[tuple[str, Any]]:
    """Each field's name, and a message that has it alone; messages in it have their first two fields, those of these none."""
    for field in kind.DESCRIPTOR.fields:
        message = kind()
        _fill(message, field, depth=1)
        yield field.full_name, message


def _stubs(folder: Path) -> Iterator[Any]:
    """The two modules of stubs that matter here."""
    for package in ("rocketmq", "rocketmq.grpc_protocol"):
        module = types.ModuleType(package)
        module.__path__ = [str(folder / package.replace(".", "/"))]
        sys.modules[package] = module
    for name in ("definition_pb2", "service_pb2"):
        yield importlib.import_module(f"rocketmq.grpc_protocol.{name}")


def _lines(stubs: Any) -> Iterator[dict[str, Any]]:
    for enum in stubs.DESCRIPTOR.enum_types_by_name.values():
        yield {"enum": enum.name, "numbers": {value.name: value.number for value in enum.values}}
    for name in stubs.DESCRIPTOR.message_types_by_name:
        for field, message in one_field_each(getattr(stubs, name)):
            yield {"field": field, "hex": message.SerializeToString(deterministic=True).hex()}


def main() -> None:
    with VECTORS.open("w", encoding="utf-8") as out:
        for stubs in _stubs(Path(sys.argv[1])):
            out.writelines(json.dumps(line) + "\n" for line in _lines(stubs))


if __name__ == "__main__":
    main()
