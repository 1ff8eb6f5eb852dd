"""JSON bodies become the columns that reading them one by one gives, whatever stands beside them."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra 'spark' is not installed")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from row_model import Unfit, json_payload  # noqa: E402

from orbitmq.errors import ConfigurationError  # noqa: E402
from orbitmq.spark.typed import json_payloads  # noqa: E402
from orbitmq.spark.typed.decoded import check_type, library, row_by_row  # noqa: E402
from orbitmq.spark.typed.decoding import payload_schema  # noqa: E402
from orbitmq.spark.typed.json_payloads import JsonDecoder  # noqa: E402
from orbitmq.spark.typed.payload_options import PayloadFormat, PayloadOptions  # noqa: E402

ORDER = pa.struct(
    [
        ("id", pa.int64()),
        ("level", pa.int8()),
        ("amount", pa.float64()),
        ("name", pa.string()),
        ("paid", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
        ("items", pa.list_(pa.struct([("sku", pa.string()), ("n", pa.int32())]))),
        ("to", pa.struct([("city", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])),
    ]
)
PRICED = pa.struct([*ORDER, ("price", pa.decimal128(10, 2))])
WITH_MAP = pa.struct([("id", pa.int64()), ("counts", pa.map_(pa.string(), pa.int64()))])


def expected(bodies: list[bytes], kind: Any) -> list[Any]:
    """Payload of each body, `Unfit` for one that has none."""
    found: list[Any] = []
    for body in bodies:
        try:
            found.append(json_payload(body, kind))
        except Unfit:
            found.append(Unfit)
    return found


def decoded(bodies: list[bytes], kind: Any = ORDER) -> list[Any]:
    values, reasons = JsonDecoder(kind).decode(pa.array(bodies, pa.binary()))
    assert values.type == kind
    assert len(values) == len(reasons) == len(bodies)
    values.validate(full=True)
    pairs = list(zip(values.to_pylist(), reasons.to_pylist(), strict=True))
    assert all(value is None for value, reason in pairs if reason is not None)
    return [value if reason is None else Unfit for value, reason in pairs]


def order(number: int) -> bytes:
    return json.dumps(
        {
            "id": number, "amount": number * 0.1, "price": "1.50", "name": f"näme {number}", "paid": bool(number % 2),
            "at": "2026-11-28T10:00:00.5Z", "day": "2026-11-28", "tags": ["a", None], "items": [{"sku": "x", "n": number}], "other": [{}],
        }
    ).encode()  # fmt: skip


BLANKS = [b"", b" ", b"\n"]
BAD = [
    *BLANKS, b"{", b"}", b"{}{}", b"[]", b"1", b'"{}"', b'{"id":1}\n{"id":2}', b'{"id":NaN}', b'{"other":NaN}', b'{"amount":Infinity}',
    b'{"amount":1e400}', b'{"id":1.0}', b'{"id":9223372036854775808}', b'{"level":128}', b'{"id":"1"}', b'{"id":true}', b'{"name":1}',
    b'{"paid":0}', b'{"price":1.555}', b'{"price":"NaN"}', b'{"at":"2026-11-28"}', b'{"at":1}', b'{"day":"soon"}', b'{"tags":"a"}',
    b'{"tags":[1]}', b'{"items":[{"n":1e1}]}', b'{"to":{"at":"never"}}', b'{"name":"\xff"}', b'{"other":"\xff"}', b'{"name":"a\nb"}',
    b'{"name":"\\ud800"}', b'{"id":1,}', b'{"id":01}', b"{'id':1}", b"\xef\xbb\xbf{}", b'{"name":"a}', b'{b"}',
]  # fmt: skip
GOOD = [
    b"{}", b"null", b" {} ", b'{"id":1}\n', b'{"id":null}', b'{"id":0}', b'{"id":-0}', b'{"amount":-1}', b'{"price":1.5}',
    b'{"price":1e2}', b'{"id":1,"id":2}', b'{"\\u0069d":7}', b'{"other":1e400}', b'{\n"id": 1\n}', b'{"name":"NaN"}', b'{"name":"\\u0000"}',
    b'{"to":null}', b'{"to":{}}', b'{"items":[null]}', b'{"items":[]}', b'{"to":{"at":"2026-01-01T00:00:00+02:00"}}', b'{"other":{"id":3}}',
    b'{"name":"\\ud83d\\ude00"}', b'{"at":"2026-11-28 10:00:00Z"}',
]  # fmt: skip


def test_good_and_bad_bodies_side_by_side() -> None:
    bodies = [body for pair in zip(map(order, range(len(BAD + GOOD))), BAD + GOOD, strict=True) for body in pair]
    for kind in (ORDER, PRICED):
        assert decoded(bodies, kind) == expected(bodies, kind)
    assert [one is Unfit for one in expected(BAD + GOOD, PRICED)] == [True] * len(BAD) + [False] * len(GOOD)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**66), 2**66), st.integers(-200, 200), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.sampled_from(["2026-11-28T10:00:00Z", "2026-11-28", "1.25", "NaN", "x\u2028y", "}"]),
)  # fmt: skip
names = st.sampled_from([field.name for field in ORDER] + ["other", "sku", "n", "city"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
objects = st.dictionaries(names, values, max_size=4).map(lambda one: json.dumps(one, ensure_ascii=False).encode())
orders = st.integers(0, 99).map(order)
spoiled = st.tuples(
    orders | objects, st.integers(0, 60), st.sampled_from([b"", b"\n", b" ", b"{", b"}", b'"', b"\xff", b",", b"\0"])
).map(lambda made: made[0][: made[1]] + made[2] + made[0][made[1] + 1 :])
bodies = st.lists(st.one_of(orders, orders, objects, spoiled, st.sampled_from(BAD + GOOD)), max_size=12)


@given(bodies)
@settings(deadline=None)
def test_bodies_say_what_the_model_says(found: list[bytes]) -> None:
    wanted = expected(found, ORDER)
    assert decoded(found) == wanted
    assert decoded(found, PRICED) == expected(found, PRICED)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["id", "counts"]), values, max_size=2).map(lambda one: json.dumps(one).encode())
    )
)
@settings(deadline=None)
def test_maps(found: list[bytes]) -> None:
    assert decoded(found, WITH_MAP) == expected(found, WITH_MAP)


def test_the_id_before_a_body_is_passed_over() -> None:
    kind = pa.struct([("id", pa.int64())])
    made = [
        (b'\0\0\0\0\7{"id":5}', {"id": 5}), (b"", Unfit), (b"\0\0\0\0\7", Unfit), (b'\1\0\0\0\7{"id":5}', Unfit), (b"\0\0\0", Unfit),
        (b"\0\0\0\0\7{}", {"id": None}), (b'{"id":5}', Unfit),
    ]  # fmt: skip
    for count in range(9):
        for chosen in (made * 2)[count:], [made[count % len(made)]] * count:
            column = pa.array([body for body, _ in chosen], pa.binary())
            values, reasons = JsonDecoder(kind, framed=True).decode(column)
            wanted = [None if value is Unfit else value for _, value in chosen]
            assert values.to_pylist() == wanted
            assert reasons.is_valid().to_pylist() == [value is None for value in wanted]


def test_names_of_fields_are_any_text() -> None:
    names = ["é", "ü", "订单", "\U0001f600", "", "a.b", 'a"b', "\\", "`", "a\nb", "a b"]
    inside = pa.struct([(name, pa.int64()) for name in names])
    kind = pa.struct([*inside, ("all", pa.list_(inside))])
    numbers = {name: number for number, name in enumerate(names)}
    value = numbers | {"all": [numbers, None]}
    bodies = [json.dumps(value, ensure_ascii=is_ascii).encode() for is_ascii in (True, False)]
    assert decoded(bodies, kind) == [value, value]
    assert decoded([b'{"":4}'], pa.struct([("\u00e9", pa.int64())])) == [{"\u00e9": None}]


def test_bytes_are_base64() -> None:
    kind = pa.struct([("data", pa.binary())])
    assert decoded([b'{"data":"AAE="}', b'{"data":"?"}'], kind) == [{"data": b"\0\1"}, Unfit]


@pytest.mark.parametrize("form", ["%s", '"%s"'])
def test_a_decimal_is_the_number_that_was_written_or_a_reason(form: str) -> None:
    """Arrow makes 15265846005559994995226020677.4026502144 of 9e29, 12345.00 of 12345 in a decimal(5,2), and zero of 1e-49."""
    texts = [
        "9e29", "1e28", "12345", "1234.5", "0." + "0" * 48 + "1", "1." + "0" * 60, "9e-49", "-1e-5000", "1e5000", "1e27", "12.50", "1e-2",
        "9" * 28, "9" * 29, "0." + "0" * 9 + "1", "0." + "0" * 10 + "1", "1" + "0" * 30 + "e-30",
    ]  # fmt: skip
    for kind in (pa.decimal128(38, 10), pa.decimal128(38, 0), pa.decimal128(5, 2), pa.decimal128(38, 38)):
        inside = pa.struct([("a", kind)])
        for text in texts:
            number = (form % text).encode()
            for body, field, value_of in (
                (b'{"a":%s}', pa.field("a", kind), lambda found: found),
                (b'{"a":[null,{"a":%s}]}', pa.field("a", pa.list_(inside)), lambda found: found[1]["a"]),
                (b'{"a":{"x":%s,"y":null}}', pa.field("a", pa.map_(pa.string(), kind)), lambda found: found[0][1]),
            ):
                (found,) = decoded([body % number], pa.struct([field]))
                assert found is Unfit or value_of(found["a"]) == Decimal(text)
    assert decoded([b'{"a":12.5}', b'{"a":12345}'], pa.struct([("a", pa.decimal128(5, 2))])) == [
        {"a": Decimal("12.50")},
        Unfit,
    ]


def test_a_number_that_is_too_large_for_a_float_is_not_infinity() -> None:
    kind = pa.struct([("a", pa.float32())])
    assert decoded([b'{"a":1.5}', b'{"a":1e39}', b'{"a":-1e39}', b'{"a":1e-60}'], kind) == [
        {"a": 1.5},
        Unfit,
        Unfit,
        {"a": 0.0},
    ]


def test_minus_zero_keeps_its_sign_where_it_is_no_integer() -> None:
    place = pa.struct([("at", pa.float64()), ("w", pa.float32())])
    kind = pa.struct([("a", pa.float64()), ("in", place), ("many", pa.list_(pa.float64()))])
    texts = ["-0", "-0.0", "0", "-1", "-0e3", "0.0", "null"]
    bodies = [f'{{"a":{one},"in":{{"at":{one},"w":{one}}},"many":[1,{one}]}}'.encode() for one in texts]
    found = [
        [str(value) for value in (one["a"], one["in"]["at"], one["in"]["w"], one["many"][1])]
        for one in decoded(bodies, kind)
    ]
    assert found == [[text] * 4 for text in ("0.0", "-0.0", "0.0", "-1.0", "-0.0", "0.0", "None")]


def test_reasons_name_the_field_and_are_short() -> None:
    long = b'{"at":"%s"}' % (b"x" * 100_000)
    reasons = (
        JsonDecoder(ORDER)
        .decode(pa.array([b'{"id":"1"}', b'{"level":300}', b"", long], pa.binary()))
        .reasons.to_pylist()
    )
    assert "`$.id`" in reasons[0]
    assert reasons[1].startswith("field 'level': ")
    assert reasons[2] == "the body is blank"
    assert reasons[3].startswith("field 'at': ")
    assert len(reasons[3]) <= 300


def test_a_body_of_nested_arrays_costs_its_row_only() -> None:
    deep = b"[" * 2_000_000 + b"]" * 2_000_000
    found = [
        order(1),
        b'{"id":5,"other":%s}' % deep,
        b'{"tags":%s}' % deep,
        deep,
        b'{"other":%s' % deep[:2_000_000],
        order(2),
    ]
    first, second = expected([order(1), order(2)], ORDER)
    assert decoded(found) == [first, Unfit, Unfit, Unfit, Unfit, second]


# --- schemas --------------------------------------------------------------------------------------------------------


def nested(depth: int) -> Any:
    kind = pa.int64()
    for _ in range(depth):
        kind = pa.struct([("a", kind)])
    return kind


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.string(), "column payload is string .it is a struct"),
        (pa.struct([]), "it is a struct of what bodies hold"),
        (nested(40), "deeper than 32 at payload.a.a"),
        (pa.struct([(f"f{n}", pa.int64()) for n in range(2_001)]), "has 2001 fields; 2000 are allowed"),
        (pa.struct([("a", pa.int64()), ("a", pa.string())]), "payload has two fields 'a'"),
        (pa.struct([pa.field("a", pa.int64(), nullable=False)]), r"payload.a may be null .leave NOT NULL out"),
        (pa.struct([("a", pa.map_(pa.int64(), pa.int64()))]), "the keys of payload.a are int64"),
        (pa.struct([("a", pa.duration("us"))]), r"payload.a is of a type that no payload has: duration"),
    ],
)
def test_schemas_that_no_payload_has(kind: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        check_type(kind)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("id bigint, name varchar(10)", "id bigint, name string"),
        ("a: CHAR ( 3 ), b array<Character(4)>", "a: string, b array<string>"),
        ("to struct<char: char(3), varchar int>", "to struct<char: string, varchar int>"),
        ("`char(3)` int COMMENT 'a varchar(4)', b int", "`char(3)` int COMMENT 'a varchar(4)', b int"),
        ("`a``char(3)` int, my_char string", "`a``char(3)` int, my_char string"),
    ],
)
def test_texts_of_a_length_are_strings_in_a_schema(given: str, made: str) -> None:
    """Spark's own workers know no column of such a type."""
    assert payload_schema(PayloadOptions(format=PayloadFormat.JSON, schema=given)) == f"struct<{made}>"


def test_a_package_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r'No module named .*pip install "orbitmq\[typed\]"'):
        library("a_package_that_nobody_has")


# --- planted bugs: the comparison with the model finds them ---------------------------------------------------------


def test_a_blank_body_that_shifts_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts agree."""
    found = [order(1), b"", order(4), b'{"id":2}', order(5)]
    assert decoded(found) == expected(found, ORDER)

    def shifted(bodies: Any, *rest: Any) -> Any:
        full = [body for body in bodies.to_pylist() if body]
        return row_by_row(pa.array(full + [b""] * (len(bodies) - len(full)), pa.binary()), *rest)

    monkeypatch.setattr(json_payloads, "row_by_row", shifted)
    assert decoded(found) != expected(found, ORDER)


def test_a_null_that_becomes_zero_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [b'{"id":null}', b'{"id":0}', b"{}"]
    assert [one["id"] for one in decoded(found)] == [None, 0, None]

    def filled(column: Any, kind: Any) -> Any:
        return pa.StructArray.from_arrays(
            [child.fill_null(0) if pa.types.is_int64(child.type) else child for child in column.flatten()],
            fields=list(kind),
        )

    monkeypatch.setattr(json_payloads, "fitted", filled)
    kind = pa.struct([("id", pa.int64())])
    assert decoded(found, kind) != expected(found, kind)
