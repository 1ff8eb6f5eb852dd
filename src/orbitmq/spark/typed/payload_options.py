"""Options that say what bodies hold, for reads and writes.

Rules of this file
1. Pure, as `given_options`: every mistake is found before a server or a file is asked; so is an option that would have no effect.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import PAYLOAD_SCHEMA_CHARS_MAX, PAYLOAD_SUBJECTS_MAX
from orbitmq.spark.given_options import GivenOptions, Option


class PayloadFormat(StrEnum):
    """How the bodies of typed messages are written."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class PayloadMode(StrEnum):
    """What becomes of a body that cannot be decoded."""

    PERMISSIVE = "permissive"
    """A row without payload, and with the reason."""
    FAILFAST = "failfast"
    """The query fails."""


class PayloadFraming(StrEnum):
    """What stands before the payload in a body."""

    NONE = "none"
    CONFLUENT = "confluent"
    """A zero byte and four bytes of the schema's id; with Protobuf also which message of its file it is."""


_FORMAT: Final = Option(
    "payload", "`json`, `avro` or `protobuf`", "", "What bodies hold. They are then the column `payload`, a struct."
)
_SCHEMA: Final = Option(
    "payloadSchema",
    "JSON: `id bigint, amount decimal(10,2)`; Avro: a schema, or the path of one; Protobuf: the path of a descriptor set",
    "",
    "Which fields payloads have. Paths are on the driver's machine. For JSON a schema with the column `payload` says it as well, for Avro "
    "a registry.",
)
_MESSAGE: Final = Option("payloadMessage", "such as `shop.Order`", "", "Protobuf: the full name of the message.")
_REGISTRY: Final = (
    Option(
        "payloadRegistry",
        "`http://host:8081`",
        "",
        "Avro: the schema registry. Only the driver asks it; bodies then begin with the id of their schema.",
    ),
    Option(
        "payloadSubject",
        "names separated by commas",
        "`<topic>-value`",
        "The registry's subjects; the newest of the first counts.",
    ),
    Option("payloadRegistryUser", "a name", "", "Who asks the registry."),
    Option(
        "payloadRegistrySecretFile",
        "a path on the driver's machine",
        "",
        "File with the secret of who asks the registry.",
    ),
)

PAYLOAD_READ_OPTIONS: Final = (
    _FORMAT,
    _SCHEMA,
    _MESSAGE,
    Option(
        "payloadMode",
        "`permissive` or `failfast`",
        "`permissive`",
        "`permissive`: a body that cannot be decoded is a row whose `payload` is null and whose `payloadError` says why. `failfast`: it "
        "fails the query.",
    ),
    Option(
        "payloadFraming",
        "`none` or `confluent`",
        "`confluent` with payloadRegistry, else `none`",
        "`confluent`: bodies begin with a zero byte and the id of their schema.",
    ),
    *_REGISTRY,
)
PAYLOAD_WRITE_OPTIONS: Final = (_FORMAT, _SCHEMA, _MESSAGE, *_REGISTRY)


class RegistryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where schemas are. subjects: not empty."""

    url: str
    subjects: tuple[str, ...]
    user: str | None = None
    secret_file: str | None = None


class PayloadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say. schema: the text given."""

    format: PayloadFormat
    schema: str | None = None
    message: str | None = None
    mode: PayloadMode = PayloadMode.PERMISSIVE
    framing: PayloadFraming = PayloadFraming.NONE
    registry: RegistryOptions | None = None


def payload_options(given: GivenOptions) -> PayloadOptions | None:
    """None where bodies are bytes. `ConfigurationError` for what does not go together."""
    names = {option.name for option in PAYLOAD_READ_OPTIONS}
    if not given.get("payload"):
        for name in sorted(names):
            if given.get(name):
                raise ConfigurationError(
                    f"option {name} has no effect without payload",
                    remedy='say what bodies hold: .option("payload", "json")',
                )
        return None
    form = PayloadFormat(given.choice("payload", [one.value for one in PayloadFormat]))
    useless = {"payloadMessage": form is not PayloadFormat.PROTOBUF, "payloadRegistry": form is not PayloadFormat.AVRO}
    for name, is_useless in useless.items():
        if given.get(name) and is_useless:
            raise ConfigurationError(
                f"option {name} has no effect on payloads of the format {form}", remedy="leave it out"
            )
    registry = _registry(given)
    framings = [PayloadFraming.NONE, PayloadFraming.CONFLUENT]
    if registry is not None:
        framings = [PayloadFraming.CONFLUENT]
    options = PayloadOptions(
        format=form,
        schema=given.get("payloadSchema") or None,
        message=given.get("payloadMessage") or None,
        mode=PayloadMode(given.choice("payloadMode", [mode.value for mode in PayloadMode])),
        framing=PayloadFraming(given.choice("payloadFraming", framings)),
        registry=registry,
    )
    _check(options)
    return options


def _check(options: PayloadOptions) -> None:
    if len(options.schema or "") > PAYLOAD_SCHEMA_CHARS_MAX:
        raise ConfigurationError(
            f"option payloadSchema has {len(options.schema or '')} characters; {PAYLOAD_SCHEMA_CHARS_MAX} are allowed"
        )
    if options.format is PayloadFormat.AVRO and options.schema is None and options.registry is None:
        raise ConfigurationError(
            "nothing says by which schema the payloads were written",
            remedy="give the option payloadSchema, or payloadRegistry",
        )
    if (
        options.format is PayloadFormat.AVRO
        and options.framing is PayloadFraming.CONFLUENT
        and options.registry is None
    ):
        raise ConfigurationError(
            "payloadFraming=confluent needs the schemas by their ids", remedy="give the option payloadRegistry"
        )
    if options.format is PayloadFormat.PROTOBUF and None in (options.schema, options.message):
        raise ConfigurationError(
            "payloads of the format protobuf need payloadSchema and payloadMessage",
            remedy="make a descriptor set: protoc --include_imports --descriptor_set_out=orders.pb orders.proto, and name its message",
        )


def _registry(given: GivenOptions) -> RegistryOptions | None:
    url = given.get("payloadRegistry")
    if not url:
        for name in ("payloadSubject", "payloadRegistryUser", "payloadRegistrySecretFile"):
            if given.get(name):
                raise ConfigurationError(f"option {name} has no effect without payloadRegistry", remedy="leave it out")
        return None
    if not url.startswith(("http://", "https://")) or "@" in url:
        raise ConfigurationError(
            f"option payloadRegistry: {url.rpartition('@')[2][:80]!r} is no address of a registry",
            remedy="write http://host:8081; who asks is payloadRegistryUser, the secret is in payloadRegistrySecretFile",
        )
    subjects = [part.strip() for part in (given.get("payloadSubject") or "").split(",") if part.strip()]
    if not subjects:
        topics = given.topics("subscribe") if given.get("subscribe") else [given.get("topic") or ""]
        if len(topics) != 1 or not topics[0]:
            raise ConfigurationError(
                "nothing says which subject of the registry counts", remedy="give the option payloadSubject"
            )
        subjects = [f"{topics[0]}-value"]
    if len(subjects) > PAYLOAD_SUBJECTS_MAX:
        raise ConfigurationError(
            f"option payloadSubject names {len(subjects)} subjects; {PAYLOAD_SUBJECTS_MAX} are allowed"
        )
    user, secret_file = given.get("payloadRegistryUser") or None, given.get("payloadRegistrySecretFile") or None
    if (user is None) != (secret_file is None):
        raise ConfigurationError(
            "payloadRegistryUser and payloadRegistrySecretFile go together", remedy="give both, or none"
        )
    return RegistryOptions(url=url, subjects=tuple(subjects), user=user, secret_file=secret_file)
