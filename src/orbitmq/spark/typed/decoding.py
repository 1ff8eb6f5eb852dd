"""How bodies are decoded: what the driver found out, as it travels to the workers, and the decoder that comes of it there.

Rules of this file
1. `PayloadRules` are values; a decoder is made for each task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from orbitmq.spark.typed.payload_options import PayloadFormat, PayloadOptions

if TYPE_CHECKING:
    from orbitmq.spark.typed.decoded import PayloadDecoder


class PayloadRules(msgspec.Struct, frozen=True, kw_only=True):
    """How to decode. kind: the Arrow type of `payload`, a struct."""

    options: PayloadOptions
    kind: Any

    def decoder(self) -> PayloadDecoder:
        assert self.options.format is PayloadFormat.JSON
        from orbitmq.spark.typed.json_payloads import JsonDecoder

        return JsonDecoder(self.kind)


def payload_rules(options: PayloadOptions, kind: Any) -> PayloadRules:
    """What a read of such payloads goes by. Asks files and registries, on the driver. `ConfigurationError`."""
    from orbitmq.spark.typed.decoded import check_type

    check_type(kind)
    return PayloadRules(options=options, kind=kind)


def payload_schema(options: PayloadOptions) -> str:
    """The type of `payload` in Spark's DDL, where the user's own schema does not say it."""
    from orbitmq.errors import ConfigurationError

    if options.schema is None:
        raise ConfigurationError(
            "nothing says which fields payloads have",
            remedy='give the option payloadSchema, for example "id bigint, name string", or a schema with a column payload',
        )
    return f"struct<{options.schema}>"
