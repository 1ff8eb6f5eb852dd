"""The messages of gRPC: RocketMQ's own stubs are the judge of every name and number."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from tests.vectors.record_grpc_messages import VECTORS, one_field_each

from orbitmq.protocol.grpc import messages
from orbitmq.protocol.grpc.definitions import read_definitions

TEXT = messages.DEFINITIONS.read_text(encoding="utf-8")
ADDED_SINCE = "apache.rocketmq.v2.Settings.client_properties"
"""Not in the stubs, which are of version 2.1.2."""


LINES = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
FIELDS = {line["field"]: bytes.fromhex(line["hex"]) for line in LINES if "field" in line}
ENUMS = {line["enum"]: line["numbers"] for line in LINES if "enum" in line}


def classes(text: str) -> list[Any]:
    """The classes of a file of definitions, in a pool of their own."""
    pool = DescriptorPool()
    for known in (duration_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = read_definitions(text)
    pool.AddSerializedFile(file.SerializeToString())
    return [GetMessageClass(message) for message in pool.FindFileByName(file.name).message_types_by_name.values()]


def different(kinds: list[Any]) -> set[str]:
    """Fields that these classes write or read otherwise than RocketMQ's stubs."""
    wrong, seen = set(), set()
    for kind in kinds:
        for name, message in one_field_each(kind):
            seen.add(name)
            theirs = FIELDS.get(name, b"")
            if theirs != message.SerializeToString(deterministic=True) or kind.FromString(theirs) != message:
                wrong.add(name)
    return wrong | (FIELDS.keys() - seen)


def test_every_field_is_written_and_read_as_by_the_stubs_of_rocketmq() -> None:
    assert len(FIELDS) == 206
    assert different(classes(TEXT)) == {ADDED_SINCE}


@pytest.mark.parametrize(
    ("right", "wrong", "found"),
    [
        ("string message_id = 3;", "string message_id = 30;", "SystemProperties.message_id"),
        ("optional int32 priority = 22;", "optional int64 priority = 23;", "SystemProperties.priority"),
        ("string trace_context = 6;", "", "EndTransactionRequest.trace_context"),
        ("  GZIP = 2;", "  GZIP = 3;", "SystemProperties.body_encoding"),
    ],
)
def test_a_slip_in_the_definitions_is_found(right: str, wrong: str, found: str) -> None:
    assert right in TEXT
    assert f"apache.rocketmq.v2.{found}" in different(classes(TEXT.replace(right, wrong, 1)))


def test_enums_have_the_numbers_of_the_stubs() -> None:
    ours = {name: {value.name: value.value for value in getattr(messages, name)} for name in ENUMS}
    assert ours.pop("Code").items() - ENUMS["Code"].items() == {("INVALID_CLIENT_PROPERTIES", 40021)}
    assert len(ENUMS) == 13
    for name, numbers in ours.items():
        assert numbers == ENUMS[name]


@pytest.mark.parametrize(
    "line", ["map<string, int32> counts = 1;", "string name;", "reserved 4;", "rpc Send(A) returns (B);"]
)
def test_a_line_that_is_not_understood_is_no_line_that_is_passed_over(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 2 .* not understood"):
        read_definitions(f"message Resource {{\n  {line}\n}}\n")


def test_numbers_that_an_enum_does_not_know_are_kept() -> None:
    settings = messages.Settings.FromString(messages.Settings(client_type=99).SerializeToString())
    assert settings.client_type == 99
    assert messages.ClientType.LITE_SIMPLE_CONSUMER == 6


def test_unknown_fields_survive() -> None:
    later = b"\x9a\x06\x05later"  # field 99
    assert messages.Settings.FromString(later).SerializeToString() == later


def test_another_package_of_the_same_names_may_be_in_the_process() -> None:
    """As RocketMQ's Python client puts its definitions into the pool that all share, before or after ours."""
    theirs = (
        "from google.protobuf import duration_pb2, timestamp_pb2, descriptor_pool\n"
        "from orbitmq.protocol.grpc.definitions import read_definitions\n"
        "import pathlib, orbitmq.protocol.grpc\n"
        "path = pathlib.Path(orbitmq.protocol.grpc.__file__).with_name('messages.proto')\n"
        "file = read_definitions(path.read_text())\n"
        "file.name = 'definition.proto'\n"
        "descriptor_pool.Default().AddSerializedFile(file.SerializeToString())\n"
    )
    ours = "from orbitmq.protocol.grpc import messages\nassert messages.Status(code=20000).SerializeToString()\n"
    for program in (ours + theirs, theirs + ours):
        subprocess.run([sys.executable, "-c", program], check=True)


def test_a_server_does_not_load_protobuf_before_it_is_needed() -> None:
    program = (
        "import sys\n"
        "import orbitmq, orbitmq.cli.main, orbitmq.cli.servers.serving, orbitmq.server.roles.broker_role, orbitmq.protocol.grpc\n"
        "print([name for name in sys.modules if name.startswith('google')])\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
