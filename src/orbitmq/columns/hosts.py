"""Hosts as text and offset message ids, for many records at once.

Rules of this file
1. There are few different hosts: each is turned into text once.
2. The texts are those of `protocol.ids`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.columns.layout import RecordLayout
from orbitmq.protocol.ids import host_text

_HEX: Final = np.frombuffer("".join(f"{number:02X}" for number in range(256)).encode(), "V2")


def host_column(layout: RecordLayout, name: str) -> Any:
    """`bornHost` or `storeHost` as `ip:port`, an IPv6 address in brackets."""
    columns = []
    for group in layout.groups:
        hosts = group.heads[name]
        packed = pa.Array.from_buffers(
            pa.binary(hosts.dtype.itemsize), len(hosts), [None, pa.py_buffer(np.ascontiguousarray(hosts))]
        ).dictionary_encode()
        texts = pa.array([host_text(host) for host in packed.dictionary.to_pylist()], pa.string())
        columns.append(texts.take(packed.indices))
    return _in_order(layout, columns)


def offset_ids(layout: RecordLayout) -> Any:
    """Packed store host and position in the log, in upper-case hexadecimal."""
    columns = []
    for group in layout.groups:
        hosts, positions = group.heads["storeHost"], group.heads["physicalOffset"]
        size = hosts.dtype.itemsize
        digits = np.empty((len(hosts), size + 8), "V2")
        digits[:, :size] = _HEX[_bytes(hosts)]
        digits[:, size:] = _HEX[_bytes(positions)]
        offsets = np.arange(len(hosts) + 1, dtype=np.int32) * (2 * (size + 8))
        columns.append(
            pa.Array.from_buffers(pa.string(), len(hosts), [None, pa.py_buffer(offsets), pa.py_buffer(digits)])
        )
    return _in_order(layout, columns)


def _bytes(column: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.dtype.itemsize)


def _in_order(layout: RecordLayout, columns: list[Any]) -> Any:
    """The columns of all groups as one, in the order of the records."""
    if layout.groups[0].rows is None:
        return columns[0]
    rows = np.concatenate([group.rows for group in layout.groups])
    places = np.empty(len(rows), np.int64)
    places[rows] = np.arange(len(rows))
    return pa.concat_arrays(columns).take(pa.array(places))
