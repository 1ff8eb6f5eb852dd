"""Options that say what bodies hold, for reads and writes.

Rules of this file
1. Pure, as `given_options`: every mistake is found before a server or a file is asked; so is an option that would have no effect.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import PAYLOAD_SCHEMA_CHARS_MAX
from orbitmq.spark.given_options import GivenOptions, Option


class PayloadFormat(StrEnum):
    """How the bodies of typed messages are written."""

    JSON = "json"


class PayloadMode(StrEnum):
    """What becomes of a body that cannot be decoded."""

    PERMISSIVE = "permissive"
    """A row without payload, and with the reason."""
    FAILFAST = "failfast"
    """The query fails."""


_FORMAT: Final = Option("payload", "`json`", "", "What bodies hold. They are then the column `payload`, a struct.")
_SCHEMA: Final = Option(
    "payloadSchema",
    "`id bigint, amount decimal(10,2)`",
    "the type of `payload` in your schema",
    "Names and types of the fields, as in Spark's DDL.",
)
_MODE: Final = Option(
    "payloadMode",
    "`permissive` or `failfast`",
    "`permissive`",
    "`permissive`: a body that cannot be decoded is a row whose `payload` is null and whose `payloadError` says why. `failfast`: it fails "
    "the query.",
)

PAYLOAD_READ_OPTIONS: Final = (_FORMAT, _SCHEMA, _MODE)


class PayloadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say. schema: the text given."""

    format: PayloadFormat
    schema: str | None = None
    mode: PayloadMode = PayloadMode.PERMISSIVE


def payload_options(given: GivenOptions) -> PayloadOptions | None:
    """None where bodies are bytes. `ConfigurationError` for what does not go together."""
    if not given.get("payload"):
        for name in ("payloadSchema", "payloadMode"):
            if given.get(name):
                raise ConfigurationError(
                    f"option {name} has no effect without payload",
                    remedy='say what bodies hold: .option("payload", "json")',
                )
        return None
    schema = given.get("payloadSchema")
    if schema is not None and len(schema) > PAYLOAD_SCHEMA_CHARS_MAX:
        raise ConfigurationError(
            f"option payloadSchema has {len(schema)} characters; {PAYLOAD_SCHEMA_CHARS_MAX} are allowed"
        )
    return PayloadOptions(
        format=PayloadFormat(given.choice("payload", [form.value for form in PayloadFormat])),
        schema=schema or None,
        mode=PayloadMode(given.choice("payloadMode", [mode.value for mode in PayloadMode])),
    )
