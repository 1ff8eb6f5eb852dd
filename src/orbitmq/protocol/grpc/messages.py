"""The classes of gRPC messages and their enums, made when this module is imported.

Their types stand in `messages.pyi`, which `make generate` writes from `messages.proto` like the classes here.

Rules of this file
1. The definitions stand in a pool of their own: a program may have RocketMQ's client, with other definitions of the same names, in the
   same process.
2. An enum is open: a field may hold a number that its `IntEnum` does not know, so fields are plain numbers.
3. Importing it loads protobuf: 20 ms and 6 MB.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from orbitmq.protocol.grpc.definitions import FILE_NAME, read_definitions

DEFINITIONS = Path(__file__).with_suffix(".proto")


def _classes() -> dict[str, type]:
    pool = DescriptorPool()
    for known in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(read_definitions(DEFINITIONS.read_text(encoding="utf-8")).SerializeToString())
    file = pool.FindFileByName(FILE_NAME)
    classes: dict[str, type] = {
        enum.name: IntEnum(enum.name, {value.name: value.number for value in enum.values}, module=__name__)
        for enum in file.enum_types_by_name.values()
    }
    for name in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        classes[name.rpartition(".")[2]] = GetMessageClass(pool.FindMessageTypeByName(name))
    for message in file.message_types_by_name.values():
        classes[message.name] = GetMessageClass(message)
    return classes


globals().update(_classes())
