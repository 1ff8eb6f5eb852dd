"""Columns that a message does not have and a read gives: typed payloads, and what programs for Kafka's source call things.

Rules of this file
1. A view is made on the driver and travels; batches are shaped in the task, one by one, and never change their rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orbitmq.errors import PayloadUnreadableError
from orbitmq.spark.typed.decoding import PayloadRules
from orbitmq.spark.typed.payload_options import PayloadMode

if TYPE_CHECKING:
    import pyarrow as pa

    from orbitmq.spark.typed.decoded import Decoded, PayloadDecoder

KAFKA_COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""What Kafka's source calls its columns, beside `topic`, with its types."""

PAYLOAD_COLUMNS: Final = {"payload": None, "payloadError": "string", "corruptBody": "binary"}
"""What a read with the option `payload` has; the first is of the type that its schema says."""

_MADE_OF: Final = {
    "key": "keys", "value": "body", "partition": "queueId", "offset": "queueOffset", "timestamp": "bornTimestamp",
    "timestampType": "queueId", "headers": "properties", "payload": "body", "payloadError": "body", "corruptBody": "body",
}  # fmt: skip
_PLACE: Final = {"topic": "topic", "brokerName": "broker", "queueId": "queue", "queueOffset": "offset"}


class RowView(NamedTuple):
    """schema: of the rows that Spark gets, in their order. payload: how bodies are decoded, None where nobody asked for it."""

    schema: Any
    payload: PayloadRules | None

    @property
    def fetched(self) -> tuple[str, ...]:
        """The columns of messages that these are made of."""
        names = [_MADE_OF.get(name, name) for name in self.schema.names]
        if self.payload is not None and self.payload.options.mode is PayloadMode.FAILFAST:
            names += _PLACE
        return tuple(dict.fromkeys(names))


def shaped(batches: Iterator[pa.RecordBatch], view: RowView) -> Iterator[pa.RecordBatch]:
    """The same rows with the columns of the view. `PayloadUnreadableError` where the mode is failfast."""
    import pyarrow as pa

    decoder = view.payload.decoder() if view.payload is not None else None
    for batch in batches:
        made: dict[str, Any] = {}
        if decoder is not None:
            body = batch.column("body")
            made["payload"], made["payloadError"] = _decoded(decoder, body)
            if view.payload is not None and view.payload.options.mode is PayloadMode.FAILFAST:
                _check(batch, made["payloadError"])
            made["corruptBody"] = _only_where(made["payloadError"], body)
        columns = [made[name] if name in made else _column(batch, name) for name in view.schema.names]
        yield pa.RecordBatch.from_arrays(columns, schema=view.schema)


def _decoded(decoder: PayloadDecoder, bodies: Any) -> Decoded:
    """A body that is null, as data frames of others may have, is a payload that is null, without a reason."""
    import numpy as np
    import pyarrow as pa

    from orbitmq.spark.typed.decoded import Decoded

    if not bodies.null_count:
        return decoder.decode(bodies)
    known = bodies.is_valid().to_numpy(zero_copy_only=False)
    values, reasons = decoder.decode(bodies.drop_null())
    places = pa.array(np.cumsum(known) - 1, mask=~known)
    return Decoded(values.take(places), reasons.take(places))


def _only_where(reasons: Any, bodies: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if reasons.null_count == len(reasons):
        return pa.nulls(len(reasons), pa.binary())
    return pc.if_else(pc.is_valid(reasons), bodies, pa.scalar(None, pa.binary()))


def _check(batch: pa.RecordBatch, reasons: Any) -> None:
    if reasons.null_count == len(reasons):
        return
    row = next(row for row, reason in enumerate(reasons) if reason.is_valid)
    place = [
        f"{word} {batch.column(name)[row].as_py()!r}" for name, word in _PLACE.items() if name in batch.schema.names
    ]
    raise PayloadUnreadableError(
        f"{', '.join(place) or f'row {row} of a batch'}: the body cannot be decoded: {reasons[row].as_py()}",
        remedy="with payloadMode=permissive it is a row with its reason in payloadError",
    )


def _column(batch: pa.RecordBatch, name: str) -> Any:
    import numpy as np
    import pyarrow as pa

    source = batch.column(_MADE_OF.get(name, name))
    if name == "key":
        return source.cast(pa.binary())
    if name == "timestampType":  # 0 is the time at which the message was made
        return pa.array(np.zeros(batch.num_rows, np.int32))
    if name == "headers":
        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        pairs = pa.StructArray.from_arrays([source.keys, source.items.cast(pa.binary())], fields=list(pair))
        return pa.ListArray.from_arrays(source.offsets, pairs, mask=source.is_null() if source.null_count else None)
    return source
