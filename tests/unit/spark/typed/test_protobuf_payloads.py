"""Protobuf bodies become what the library reads from each; what has no presence is zero, what has it may be null."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from orbitmq.errors import ConfigurationError  # noqa: E402
from orbitmq.spark.typed.fitting import check_fits  # noqa: E402
from orbitmq.spark.typed.protobuf_payloads import ProtobufDecoder, ProtobufEncoder, message_class, protobuf_type  # noqa: E402

Field = descriptor_pb2.FieldDescriptorProto
BAD = object()


def descriptor_set() -> bytes:
    """shop.Order, with a message of each kind of field in it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )  # fmt: skip
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=Field.TYPE_MESSAGE, type_name=".shop.Node", label=Field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    item = order.nested_type.add(name="Item")
    item.field.add(name="n", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    plain = {"id": Field.TYPE_INT64, "name": Field.TYPE_STRING, "data": Field.TYPE_BYTES, "amount": Field.TYPE_DOUBLE,
             "paid": Field.TYPE_BOOL, "small": Field.TYPE_FLOAT, "count": Field.TYPE_UINT32, "large": Field.TYPE_UINT64}  # fmt: skip
    for number, (name, kind) in enumerate(plain.items(), start=1):
        order.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    order.field.add(name="state", number=20, type=Field.TYPE_ENUM, type_name=".shop.State", label=Field.LABEL_OPTIONAL)
    order.field.add(
        name="items", number=21, type=Field.TYPE_MESSAGE, type_name=".shop.Order.Item", label=Field.LABEL_REPEATED
    )
    order.field.add(name="tags", number=22, type=Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    order.field.add(
        name="counts",
        number=23,
        type=Field.TYPE_MESSAGE,
        type_name=".shop.Order.CountsEntry",
        label=Field.LABEL_REPEATED,
    )
    order.field.add(
        name="at",
        number=24,
        type=Field.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=Field.LABEL_OPTIONAL,
    )
    order.field.add(
        name="level",
        number=25,
        type=Field.TYPE_MESSAGE,
        type_name=".google.protobuf.Int32Value",
        label=Field.LABEL_OPTIONAL,
    )
    order.oneof_decl.add(name="_bonus")
    order.field.add(
        name="bonus", number=26, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL, proto3_optional=True, oneof_index=0
    )
    found = descriptor_pb2.FileDescriptorSet()
    for one in (timestamp_pb2, wrappers_pb2):
        one.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.add().CopyFrom(file)
    return found.SerializeToString()


SET = descriptor_set()
ORDER = message_class(SET, "shop.Order")
KIND = protobuf_type(ORDER.DESCRIPTOR)
ZERO = {
    "id": 0, "name": "", "data": b"", "amount": 0.0, "paid": False, "small": 0.0, "count": 0, "large": Decimal(0), "state": "NEW",
    "items": [], "tags": [], "counts": {}, "at": None, "level": None, "bonus": None,
}  # fmt: skip
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1), "name": st.text(max_size=4), "data": st.binary(max_size=4),
        "amount": st.floats(allow_nan=False), "paid": st.booleans(), "small": st.floats(width=32, allow_nan=False),
        "count": st.integers(0, 2**32 - 1), "large": st.integers(0, 2**64 - 1).map(Decimal), "state": st.sampled_from(["NEW", "PAID"]),
        "items": st.lists(st.fixed_dictionaries({"n": st.integers(-(2**31), 2**31 - 1)}), max_size=3),
        "tags": st.lists(st.text(max_size=3)),
        "counts": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3),
        "at": st.none() | st.integers(0, 4_000_000_000_000_000).map(lambda us: pa.scalar(us, pa.timestamp("us", tz="UTC")).as_py()),
        "level": st.none() | st.integers(-9, 9), "bonus": st.none() | st.integers(-9, 9),
    }
)  # fmt: skip


def decoded(bodies: list[bytes], kind: Any = KIND, *, framed: bool = False) -> list[Any]:
    values, reasons = ProtobufDecoder(kind, ORDER, framed=framed).decode(pa.array(bodies, pa.binary()))
    assert values.type == kind
    pairs = zip(values.to_pylist(maps_as_pydicts="strict"), reasons.to_pylist(), strict=True)
    return [BAD if reason is not None else value for value, reason in pairs]


@given(st.lists(ORDERS, max_size=5))
@settings(deadline=None)
def test_what_is_written_is_read(orders: list[Any]) -> None:
    assert decoded([ProtobufEncoder(ORDER).encode(order) for order in orders]) == orders


@given(st.lists(st.tuples(ORDERS, st.integers(0, 60), st.sampled_from([b"", b"\xff", b"\0", b"\x0b"])), max_size=6))
@settings(deadline=None)
def test_what_the_library_refuses_is_a_row_with_a_reason(made: list[tuple[Any, int, bytes]]) -> None:
    bodies = []
    for order, at, spoilt in made:
        body = ProtobufEncoder(ORDER).encode(order)
        bodies.append(body[:at] + spoilt + body[at + 1 :])
    for body, found in zip(bodies, decoded(bodies), strict=True):
        try:
            read = ORDER.FromString(body)
        except Exception:
            assert found is BAD
            continue
        assert found is BAD or (found["id"], found["level"] is None) == (read.id, not read.HasField("level"))


def test_null_and_zero_are_two_things() -> None:
    assert decoded([b""]) == [ZERO]
    bodies = [
        ProtobufEncoder(ORDER).encode({"bonus": bonus, "level": level})
        for bonus, level in ((0, 0), (None, None), (1, 2))
    ]
    assert [(row["bonus"], row["level"], row["count"]) for row in decoded(bodies)] == [
        (0, 0, 0),
        (None, None, 0),
        (1, 2, 0),
    ]


def test_an_enum_of_a_newer_program_is_its_number() -> None:
    assert decoded([ORDER(state=7).SerializeToString()], pa.struct([("state", pa.string())])) == [{"state": "7"}]


def test_deep_bodies_are_refused_by_the_library() -> None:
    body = b""
    for _ in range(2_000):
        body = (
            b"\x0a" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body
            if len(body) > 127
            else b"\x0a" + bytes([len(body)]) + body
        )
    node = message_class(SET, "shop.Node")
    kind = pa.struct([("next", pa.struct([("next", pa.struct([("next", pa.null())]))]))])
    narrow = protobuf_type(node.DESCRIPTOR, pa.struct([("next", pa.struct([]))]))
    assert kind is not None
    assert ProtobufDecoder(narrow, node, framed=False).decode(pa.array([body], pa.binary())).reasons[0].is_valid


def test_frames_say_which_message_it_is() -> None:
    body = ORDER(id=5).SerializeToString()
    bodies = [
        b"\0\0\0\0\1\2\2" + body,
        b"\0\0\0\0\1\0" + body,
        b"\0\0\0\0\1",
        b"\0\0\0",
        b"\1\0\0\0\1\2\2" + body,
        b"\0\0\0\0\1" + b"\xff" * 9,
    ]
    kind = pa.struct([("id", pa.int64())])
    assert decoded(bodies, kind, framed=True) == [{"id": 5}, BAD, BAD, BAD, BAD, BAD]


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (b"\xff\xff", "shop.Order", "the descriptor set cannot be read"),
        (SET, "shop.Ordr", r"the descriptor set has no message 'shop.Ordr' .it has .*shop.Order"),
    ],
)
def test_descriptor_sets_that_do_not_help(content: bytes, name: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        message_class(content, name)


def test_a_message_in_itself_and_fields_that_are_not_there() -> None:
    node = message_class(SET, "shop.Node").DESCRIPTOR
    with pytest.raises(ConfigurationError, match=r"recursive: payload.next is a shop.Node inside of itself"):
        protobuf_type(node)
    with pytest.raises(ConfigurationError, match=r"shop.Order has no payload.ID .the fields there are id, name"):
        protobuf_type(ORDER.DESCRIPTOR, pa.struct([("ID", pa.int64())]))
    wanted = pa.struct([("count", pa.int32())])
    with pytest.raises(ConfigurationError, match=r"payload.count is int64 by its protobuf schema, and int32"):
        check_fits(wanted, protobuf_type(ORDER.DESCRIPTOR, wanted), "its protobuf schema")


def test_a_message_of_messages_that_are_used_again_and_again_is_looked_at_in_no_time() -> None:
    """Each of thirty messages has two fields of the next: a thousand million fields in some lines of text."""
    file = descriptor_pb2.FileDescriptorProto(name="deep.proto", package="deep", syntax="proto3")
    file.message_type.add(name="M30").field.add(name="n", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL)
    for level in range(30):
        one = file.message_type.add(name=f"M{level}")
        for number, name in enumerate("ab", start=1):
            one.field.add(
                name=name, number=number, type=Field.TYPE_MESSAGE, type_name=f".deep.M{level + 1}", label=Field.LABEL_OPTIONAL
            )  # fmt: skip
    message = message_class(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(), "deep.M0")
    with pytest.raises(ConfigurationError, match="has more than 2000 fields"):
        protobuf_type(message.DESCRIPTOR)


@pytest.mark.parametrize(
    ("seconds", "nanos"), [(253_402_300_800, 0), (-62_135_596_801, 0), (2**62, 0), (0, -1), (0, 10**9)]
)
def test_a_time_that_no_calendar_has_is_a_reason(seconds: int, nanos: int) -> None:
    kind = pa.struct([("at", KIND.field("at").type)])
    good, bad = ORDER(), ORDER()
    good.at.seconds, good.at.nanos = -1, 500_000_000
    bad.at.seconds, bad.at.nanos = seconds, nanos
    before_1970 = pa.scalar(-500_000, KIND.field("at").type).as_py()
    assert decoded([good.SerializeToString(), bad.SerializeToString()], kind) == [{"at": before_1970}, BAD]


@pytest.mark.parametrize("value", [{"state": "LOST"}, {"tags": [None]}, {"count": -1}, {"id": 2**63}])
def test_what_does_not_fit_is_not_written(value: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        ProtobufEncoder(ORDER).encode(value)
