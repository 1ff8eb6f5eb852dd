"""Records of every kind, drawn by hypothesis: what clients send, and what only a strange or damaged one would."""

from __future__ import annotations

from hypothesis import strategies as st

from orbitmq.protocol.checksum import body_crc
from orbitmq.protocol.compression import compress
from orbitmq.protocol.records import MagicCode, Record, encode_record
from orbitmq.protocol.sysflag import Compression, with_compression, with_hosts

NAMES = (
    "TAGS", "KEYS", "UNIQ_KEY", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_OUT_MS",
    "ORBITMQ_DUE_MS", "region", "a", "ORBITMQ_DUE_MX", "Grüße",
)  # fmt: skip
_TIMES = st.one_of(
    st.integers(0, 4_000_000_000_000).map(str),
    st.sampled_from(["", "soon", "+5", "-1", "99999999999999999999", "1\x015", "١٢"]),
)
_TEXTS = st.one_of(
    st.text(alphabet="abcXYZ019 -_", max_size=24),
    st.text(max_size=6),
    st.sampled_from(['"', "\\", "\n", "a\x01b", "\x00"]),
)
_REGULAR = st.lists(
    st.tuples(st.sampled_from(NAMES), st.text(alphabet="abc019-", min_size=1, max_size=30)),
    max_size=6,
    unique_by=lambda pair: pair[0],
).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode())
_ENTRIES = st.lists(st.tuples(st.sampled_from(NAMES), st.one_of(_TIMES, _TEXTS)), max_size=30).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode()
)
_ODD = st.lists(
    st.sampled_from(
        [b"\x01", b"\x02", b"a", b"KEYS", b"TAGS\x01x\x02", b"\xc3", b"\xa9", b"\xff", "é".encode(), b"\x00"]
    ),
    max_size=14,
).map(b"".join)
PROPERTIES = st.one_of(_REGULAR, _ENTRIES, _ENTRIES.map(lambda text: text.rstrip(b"\x02")), _ODD)
_HOSTS = st.one_of(
    st.binary(min_size=8, max_size=8), st.binary(min_size=20, max_size=20), st.just(b"\x0a\0\0\1\0\0\4\xd2")
)
_INT = st.integers(-(2**31), 2**31 - 1)
_LONG = st.one_of(st.integers(0, 2**41), st.integers(-(2**63), 2**63 - 1))
_TOPICS = st.one_of(
    st.sampled_from(["orders", "payments", "a", "%RETRY%group", "rmq_sys_wheel_timer", "Straße"]),
    st.integers(128, 255).map(lambda size: "%RETRY%" + "g" * (size - 7)),
)


@st.composite
def encoded_records(draw: st.DrawFn, physical_offset: int = 0, plain: bool = False) -> bytes:
    """One whole record; `plain` leaves out what a commit log never holds."""
    born, store = draw(_HOSTS), draw(_HOSTS)
    topic = draw(_TOPICS)
    body = draw(st.one_of(st.binary(max_size=40), st.integers(0, 300).map(lambda size: b"x" * size)))
    flag = draw(st.sampled_from([0, 0, 0, 2, 4, 8, 12]))
    compression = draw(st.sampled_from([None, None, None, *Compression]))
    if compression is not None:
        body = compress(body, compression)
    properties = draw(PROPERTIES)
    if plain and properties.endswith(b"\x00"):
        properties += b"."
    return encode_record(
        Record(
            magic=MagicCode.V2 if len(topic) > 127 or draw(st.booleans()) else MagicCode.V1,
            body_crc=body_crc(body),
            queue_id=draw(_INT),
            flag=draw(_INT),
            queue_offset=draw(_LONG),
            physical_offset=physical_offset,
            sys_flag=with_hosts(with_compression(flag, compression), born, store),
            born_timestamp=draw(_LONG),
            born_host=born,
            store_timestamp=draw(_LONG),
            store_host=store,
            reconsume_times=draw(_INT),
            prepared_transaction_offset=draw(_LONG),
            body=body,
            topic=topic,
            properties=properties,
        )
    )


@st.composite
def record_data(draw: st.DrawFn, base: int = 0, plain: bool = False, max_records: int = 12) -> tuple[bytes, list[int]]:
    """Records one behind the other, as in a log that begins at `base`; the bytes, and where each begins."""
    data = bytearray()
    starts = []
    for _ in range(draw(st.integers(0, max_records))):
        starts.append(len(data))
        data += draw(encoded_records(base + len(data), plain))
    return bytes(data), starts
