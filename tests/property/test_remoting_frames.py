"""Any command survives its frame, and any cutting of the stream gives the same commands."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FrameError
from orbitmq.protocol.remoting.connection import Connection
from orbitmq.protocol.remoting.frame import Command, Serialize, decode, encode
from orbitmq.protocol.remoting.versions import Language

int32 = st.integers(-(2**31), 2**31 - 1)
int16 = st.integers(-(2**15), 2**15 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
fields = st.dictionaries(texts, texts, max_size=6)

json_commands = st.builds(
    lambda code, opaque, flag, language, version, remark, ext, body: Command(
        code, opaque, flag, language, version, remark, ext or {}, ext is not None, body
    ),
    int32,
    int32,
    int32,
    st.sampled_from(Language),
    int32,
    st.none() | texts,
    st.none() | fields,
    st.binary(max_size=50),
)
binary_commands = st.builds(
    lambda code, opaque, flag, language, version, remark, ext, body: Command(
        code, opaque, flag, language, version, remark or None, ext, bool(ext), body, Serialize.BINARY
    ),
    int16,
    int32,
    int32,
    st.sampled_from(Language),
    int16,
    texts,
    fields,
    st.binary(max_size=50),
)
commands = json_commands | binary_commands
ext_values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)


@given(commands)
def test_round_trip(command: Command) -> None:
    assert decode(encode(command)) == command


@given(st.lists(commands, max_size=8), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_any_cutting(sent: list[Command], sizes: list[int]) -> None:
    stream = b"".join(map(encode, sent))
    connection = Connection()
    got: list[Command] = []
    at = turn = 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        got += connection.receive_data(stream[at : at + size])
        at += size
        turn += 1
    assert got == sent
    assert connection.pending_bytes == 0


@given(st.dictionaries(texts, ext_values, max_size=6), st.booleans())
def test_ext_values_of_any_type_become_their_text(ext: dict[str, object], ascii_only: bool) -> None:
    header = json.dumps({"code": 1, "extFields": ext}, ensure_ascii=ascii_only).encode() + b"\n"
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    command = decode(frame)
    assert command.has_fields
    assert command.fields == {
        name: value if isinstance(value, str) else repr(value) if isinstance(value, float) else json.dumps(value)
        for name, value in ext.items()
        if value is not None
    }


@given(st.binary(max_size=200))
def test_noise_is_refused_or_read(data: bytes) -> None:
    connection = Connection()
    try:
        connection.receive_data(data)
    except FrameError:
        assert connection.pending_bytes == 0
    assert connection.pending_bytes <= len(data)
