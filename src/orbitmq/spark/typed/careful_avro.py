"""fastavro's reader in Python with a bound for the bytes of a number, for schemas that name themselves.

Its own takes any number of bytes and adds them to an ever longer number, so that a body of a megabyte takes a minute, and of four
twenty. Its C code has no such trouble.
"""

from __future__ import annotations

from typing import Any

from fastavro import _read_py
from fastavro.io.binary_decoder import BinaryDecoder

from orbitmq.limits.spark import AVRO_NUMBER_BYTES_MAX

_fastavro: Any = _read_py  # says no types


class BoundedDecoder(BinaryDecoder):
    def __init__(self, stream: Any) -> None:
        self.fo = stream

    def read_long(self) -> int:
        value = 0
        for place in range(AVRO_NUMBER_BYTES_MAX):
            byte = self.fo.read(1)
            if not byte:
                raise EOFError
            value |= (byte[0] & 0x7F) << 7 * place
            if byte[0] < 0x80:
                return int((value >> 1) ^ -(value & 1))
        raise ValueError(f"a number has more than {AVRO_NUMBER_BYTES_MAX} bytes")

    read_int = read_long


def schemaless_reader(stream: Any, writer: Any, reader: Any = None) -> Any:
    """As fastavro's."""
    named: dict[str, Any] = {"writer": {}, "reader": {}}
    writer_schema = _fastavro.parse_schema(writer, named["writer"])
    reader_schema = None if reader is None or reader == writer else _fastavro.parse_schema(reader, named["reader"])
    return _fastavro.read_data(BoundedDecoder(stream), writer_schema, named, reader_schema, {})
