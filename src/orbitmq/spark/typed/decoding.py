"""How bodies are decoded: what the driver found out, as it travels to the workers, and the decoder that comes of it there.

Rules of this file
1. `PayloadRules` are values; a decoder is made for each task.
2. Files and registries are asked by `payload_rules`, `payload_schema` and `renewed`, all on the driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import PAYLOAD_SCHEMA_CHARS_MAX
from orbitmq.spark.typed.named_file import content_of, text_of
from orbitmq.spark.typed.payload_options import PayloadFormat, PayloadFraming, PayloadOptions

if TYPE_CHECKING:
    from orbitmq.spark.typed.decoded import PayloadDecoder


class GivenSchema(msgspec.Struct, frozen=True):
    """A schema of Avro or Protobuf as it was given, and where; empty for JSON."""

    texts: tuple[str, ...] = ()
    descriptors: bytes = b""
    schema_id: int | None = None

    def type_of(self, options: PayloadOptions, wanted: Any = None) -> Any:
        """The Arrow type of payloads; only the fields of `wanted` where it is given. `ConfigurationError`."""
        if options.format is PayloadFormat.PROTOBUF:
            from orbitmq.spark.typed.protobuf_payloads import message_class, protobuf_type

            return protobuf_type(message_class(self.descriptors, options.message or "").DESCRIPTOR, wanted)
        from orbitmq.spark.typed.avro_payloads import avro_schema, avro_type

        return avro_type(avro_schema(self.texts), wanted)


class PayloadRules(msgspec.Struct, frozen=True, kw_only=True):
    """How to decode.

    kind: the Arrow type of `payload`, a struct. writers: Avro texts by id, of a registry.
    """

    options: PayloadOptions
    kind: Any
    schema: GivenSchema = GivenSchema()
    writers: Mapping[int, tuple[str, ...]] = {}

    def renewed(self) -> PayloadRules:
        """With the versions that the registry has now."""
        registry = self.options.registry
        if registry is None:
            return self
        from orbitmq.spark.typed.registry import registry_of

        return msgspec.structs.replace(self, writers=registry_of(registry).all())

    def decoder(self) -> PayloadDecoder:
        framed = self.options.framing is PayloadFraming.CONFLUENT
        if self.options.format is PayloadFormat.JSON:
            from orbitmq.spark.typed.json_payloads import JsonDecoder

            return JsonDecoder(self.kind, framed=framed)
        if self.options.format is PayloadFormat.PROTOBUF:
            from orbitmq.spark.typed.protobuf_payloads import ProtobufDecoder, message_class

            message = message_class(self.schema.descriptors, self.options.message or "")
            return ProtobufDecoder(self.kind, message, framed=framed)
        from orbitmq.spark.typed.avro_payloads import AvroDecoder, AvroSchema, avro_schema, usable_schema

        reader = avro_schema(self.schema.texts)
        if not framed:
            return AvroDecoder(self.kind, {None: reader}, None)
        writers: dict[int | None, AvroSchema | str] = {
            schema_id: reader if texts == self.schema.texts else usable_schema(texts)
            for schema_id, texts in self.writers.items()
        }
        return AvroDecoder(self.kind, writers, reader)


def given_schema(options: PayloadOptions) -> GivenSchema:
    """What the option payloadSchema leads to, or the newest of the registry."""
    text = options.schema
    if options.format is PayloadFormat.JSON:
        return GivenSchema()
    if options.format is PayloadFormat.PROTOBUF:
        return GivenSchema(descriptors=content_of("payloadSchema", text or "", PAYLOAD_SCHEMA_CHARS_MAX, _NAME_A_FILE))
    if text is None:
        assert options.registry is not None
        from orbitmq.spark.typed.registry import registry_of

        newest = registry_of(options.registry).newest()
        return GivenSchema(newest.texts, schema_id=newest.schema_id)
    if not text.startswith(("{", "[", '"')):
        text = text_of("payloadSchema", text, PAYLOAD_SCHEMA_CHARS_MAX, _NAME_A_FILE)
    return GivenSchema((text,))


_NAME_A_FILE: Final = "name the file of a schema on the driver's machine; its content travels to the workers"


def payload_rules(options: PayloadOptions, kind: Any) -> PayloadRules:
    """What a read of such payloads goes by. `ConfigurationError`, `SchemaUnavailableError`."""
    from orbitmq.spark.typed.decoded import check_type
    from orbitmq.spark.typed.fitting import check_fits

    check_type(kind)
    given = given_schema(options)
    if options.format is not PayloadFormat.JSON:
        check_fits(kind, given.type_of(options, kind), f"its {options.format} schema")
    return PayloadRules(options=options, kind=kind, schema=given)


_CHARS: Final = re.compile(
    r"""(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\b(?:varchar|char|character)\s*\(\s*\d+\s*\)""",
    re.IGNORECASE | re.DOTALL,
)
"""Names and comments in quotes, and outside of them `char(n)` and `varchar(n)`, which Spark's workers do not know in a column: strings."""


def payload_schema(options: PayloadOptions) -> str:
    """The type of `payload` in Spark's DDL, where the user's own schema does not say it."""
    if options.format is not PayloadFormat.JSON:
        from orbitmq.spark.typed.decoded import check_type
        from orbitmq.spark.typed.fitting import ddl_of

        kind = given_schema(options).type_of(options)
        check_type(kind)
        return ddl_of(kind)
    if options.schema is None:
        raise ConfigurationError(
            "nothing says which fields payloads have",
            remedy='give the option payloadSchema, for example "id bigint, name string", or a schema with a column payload',
        )
    return f"struct<{_CHARS.sub(lambda found: found[1] or 'string', options.schema)}>"
