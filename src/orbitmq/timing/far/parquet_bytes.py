"""Tables as the bytes of Parquet files, the same way for every far file.

Rules of this file
1. Page checksums are always written: a flipped bit is a damaged file, not a strange message.
2. Row groups are small enough to read one for a little, and their bounds and page index say where to look.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq


def parquet_bytes(
    table: pa.Table, *, group_rows: int, repeating: Sequence[str], plain: Collection[str] = ()
) -> pa.Buffer:
    """The file. repeating: columns with few different values, which are written as a dictionary. plain: columns that get no bounds,
    because nobody looks for a range of them."""
    sink = pa.BufferOutputStream()
    leaves = _leaves(table.schema)
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=group_rows,
        write_page_checksum=True,
        write_page_index=True,
        write_statistics=[leaf for leaf in leaves if leaf.partition(".")[0] not in plain] if plain else True,
        use_dictionary=list(repeating) or False,
    )
    return sink.getvalue()


def _leaves(schema: pa.Schema) -> list[str]:
    """Names of columns as Parquet counts them."""
    found: list[str] = []
    for field in schema:
        if pa.types.is_map(field.type):
            found += [f"{field.name}.key_value.key", f"{field.name}.key_value.value"]
        else:
            found.append(field.name)
    return found
