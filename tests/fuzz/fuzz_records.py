"""Fuzzer of the record and batch readers. Run: `python tests/fuzz/fuzz_records.py --count 1000000 --seed 7`.

For every input: `check_record` never raises; what it calls VALID decodes and encodes to the same bytes; the verdict
does not depend on what stands behind the end; the readers of pull answers, batches and bodies either read or refuse.
"""

from __future__ import annotations

import base64
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

from mutations import hex_corpus, run

from orbitmq.errors import OrbitError, ProtocolError
from orbitmq.protocol.batches import decode_batch, encode_batch, unwrap_inner_batch
from orbitmq.protocol.checksum import verify_property_crc
from orbitmq.protocol.compression import decompress
from orbitmq.protocol.properties import decode_properties
from orbitmq.protocol.records import (
    CheckStatus,
    check_record,
    decode_record,
    encode_record,
    iter_records,
)
from orbitmq.protocol.sysflag import compression_of

TESTS = Path(__file__).resolve().parents[1]
TOKENS = [bytes.fromhex(magic) for magic in ("daa320a7", "daa320ab", "cbd43194")] + [b"__CRC32#\x013720316450\x02"]
DECOMPRESSED_BYTES_MAX = 1 << 20


def corpus() -> list[bytes]:
    inputs = hex_corpus(TESTS / "fuzz" / "corpus" / "records.hex")
    for path in sorted((TESTS / "vectors" / "records").glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                vector = json.loads(line)
                inputs.append(base64.b64decode(vector["record_b64"]))
                if vector["form"] == "inner batch":
                    inputs.append(base64.b64decode(vector["body_b64"]))
    return inputs


def parse(data: bytes) -> str:
    found = check_record(data, 0, len(data))
    assert check_record(memoryview(data + b"\xda\xa3\x20\xa7" * 8), 0, len(data)) == found
    assert check_record(data, 0, len(data), require_property_crc=True).size in (0, found.size, _said(data))
    form = check_record(data, 0, len(data), crc=False)
    if form.status is CheckStatus.VALID:
        record = decode_record(data)
        assert encode_record(record) == data[: form.size]
        decode_properties(record.properties)
        _may_refuse_rest(data, record.sys_flag, record.body)
        if _refused(lambda: unwrap_inner_batch(record)):
            assert record.sys_flag & 0x80
    else:
        # What runs out into zeros was never finished, though its form can be read.
        assert _refused(lambda: decode_record(data)) or "run out into zeros" in form.problem
    verify_property_crc(data)
    _refused(lambda: list(iter_records(data)))
    try:
        items = decode_batch(data)
    except OrbitError:
        return found.status.value
    assert decode_batch(encode_batch(items)) == items
    return found.status.value


def _said(data: bytes) -> int:
    return int.from_bytes(data[:4], "big", signed=True)


def _may_refuse_rest(data: bytes, sys_flag: int, body: bytes) -> None:
    try:
        compression = compression_of(sys_flag)
        if compression is not None:
            assert len(decompress(body, compression, DECOMPRESSED_BYTES_MAX)) <= DECOMPRESSED_BYTES_MAX
    except ProtocolError:
        return


def _refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except OrbitError:
        return True
    return False


if __name__ == "__main__":
    sys.exit(run("records", corpus(), parse, TOKENS, refusals=()))
