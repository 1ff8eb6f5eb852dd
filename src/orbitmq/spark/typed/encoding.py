"""How payloads that are written become bodies.

Rules of this file
1. The type of the payload is compared with the schema on the driver, before anything is written.
2. A payload that cannot be encoded is an error that names its row, before anything of its Arrow batch is sent. Null stays null, which the
   writer refuses as it does a body that is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from orbitmq.errors import MessageIllegalError
from orbitmq.spark.typed.decoding import GivenSchema, given_schema
from orbitmq.spark.typed.payload_options import PayloadFormat, PayloadOptions

if TYPE_CHECKING:
    import pyarrow as pa


class PayloadEncoder(Protocol):
    def encode(self, value: Any) -> bytes:
        """The body of one payload, a dictionary. Raises what comes for one that does not fit."""


class EncodingRules(msgspec.Struct, frozen=True, kw_only=True):
    """How to encode; travels to the workers. place: of the payload among the columns."""

    options: PayloadOptions
    schema: GivenSchema
    place: int

    def encoder(self) -> PayloadEncoder:
        if self.options.format is PayloadFormat.JSON:
            from orbitmq.spark.typed.json_payloads import JsonEncoder

            return JsonEncoder()
        if self.options.format is PayloadFormat.PROTOBUF:
            from orbitmq.spark.typed.protobuf_payloads import ProtobufEncoder, message_class

            return ProtobufEncoder(message_class(self.schema.descriptors, self.options.message or ""))
        from orbitmq.spark.typed.avro_payloads import AvroEncoder, avro_schema
        from orbitmq.spark.typed.framing import head

        schema_id = self.schema.schema_id
        return AvroEncoder(avro_schema(self.schema.texts), b"" if schema_id is None else head(schema_id))


def encoding_rules(options: PayloadOptions, kind: Any, place: int) -> EncodingRules:
    """What a write of such payloads goes by. `ConfigurationError`, `SchemaUnavailableError`."""
    from orbitmq.spark.typed.decoded import check_type
    from orbitmq.spark.typed.fitting import check_fits

    check_type(kind)
    given = given_schema(options)
    if options.format is not PayloadFormat.JSON:
        check_fits(given.type_of(options, kind), kind, "the data frame")
    if options.registry is not None and given.schema_id is None:
        from orbitmq.spark.typed.registry import registry_of

        given = msgspec.structs.replace(given, schema_id=registry_of(options.registry).id_of(given.texts[-1]))
    return EncodingRules(options=options, schema=given, place=place)


def encoded(batches: Iterable[pa.RecordBatch], rules: EncodingRules, part: int) -> Iterator[pa.RecordBatch]:
    """The same rows with bodies in the place of payloads. `MessageIllegalError`."""
    import pyarrow as pa

    from orbitmq.spark.typed.decoded import reason_of

    encoder = rules.encoder()
    first = 0
    for batch in batches:
        bodies: list[bytes | None] = []
        for value in batch.column(rules.place).to_pylist(maps_as_pydicts="strict"):
            try:
                bodies.append(None if value is None else encoder.encode(value))
            except Exception as problem:  # the libraries of the formats raise what comes
                raise MessageIllegalError(
                    f"row {first + len(bodies)} of partition {part} has a payload that cannot be written as {rules.options.format}: "
                    f"{reason_of(problem)}",
                    remedy="look at this row of the data frame; what cannot be written can be left out by a filter before",
                ) from problem
        columns = list(batch.columns)
        columns[rules.place] = pa.array(bodies, pa.binary())
        first += batch.num_rows
        names = batch.schema.names
        names[rules.place] = "body"
        yield pa.RecordBatch.from_arrays(columns, names=names)
