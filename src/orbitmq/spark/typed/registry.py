"""Schemas from a schema registry, by the client of Confluent.

A message may be older than the newest schema and never newer than the one that its producer registered before. So a batch of messages whose
ends are fixed can be decoded with the versions that the registry lists afterwards: the driver asks for the list once for each batch,
fetches versions that it does not know yet, and ships them with the batch. Versions that were deleted count: their messages are still there.

Rules of this file
1. Only the driver asks.
2. A version never changes, so this process asks for each once.
3. Whatever goes wrong is a `SchemaUnavailableError`: nothing was read or written then, and the same batch can be done again.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NamedTuple

from orbitmq.errors import ConfigurationError, SchemaUnavailableError
from orbitmq.limits.client import CLIENT_SECRET_BYTES_MAX
from orbitmq.limits.spark import (
    PAYLOAD_REFERENCES_MAX,
    PAYLOAD_REGISTRIES_MAX,
    PAYLOAD_REGISTRY_RETRIES,
    PAYLOAD_REGISTRY_TIMEOUT_MS,
    PAYLOAD_SCHEMA_CHARS_MAX,
    PAYLOAD_SCHEMAS_MAX,
)
from orbitmq.spark.typed.decoded import library, reason_of
from orbitmq.spark.typed.named_file import text_of
from orbitmq.spark.typed.payload_options import RegistryOptions

NOT_FOUND: Final = 404


class RegisteredTexts(NamedTuple):
    """A schema under its id: texts of the schemas that it refers to, and its own as the last."""

    schema_id: int
    texts: tuple[str, ...]


class SchemaRegistry:
    """One registry, with what this process has seen there."""

    def __init__(self, options: RegistryOptions) -> None:
        client = library("confluent_kafka.schema_registry").SchemaRegistryClient
        self._options = options
        settings: dict[str, Any] = {
            "url": options.url,
            "timeout": PAYLOAD_REGISTRY_TIMEOUT_MS / 1_000,
            "max.retries": PAYLOAD_REGISTRY_RETRIES,
        }
        if options.user is not None and options.secret_file is not None:
            settings["basic.auth.user.info"] = f"{options.user}:{_secret(options.secret_file)}"
        self._client = client(settings)
        self._known: dict[tuple[str, int], RegisteredTexts] = {}

    def newest(self) -> RegisteredTexts:
        """The newest version of the first subject that is not deleted."""
        subject = self._options.subjects[0]
        versions = self._asked(subject, "versions", lambda: self._client.get_versions(subject))
        return self._version(subject, max(_numbers(versions, self._place(subject))))

    def all(self) -> dict[int, tuple[str, ...]]:
        """Every version of every subject, by id."""
        found: dict[int, tuple[str, ...]] = {}
        for subject in self._options.subjects:
            versions = self._asked(
                subject, "versions", lambda subject=subject: self._client.get_versions(subject, deleted=True)
            )
            for version in _numbers(versions, self._place(subject)):
                one = self._version(subject, version)
                found[one.schema_id] = one.texts
        return found

    def id_of(self, text: str) -> int:
        """The id under which the first subject has this schema."""
        from confluent_kafka.schema_registry import Schema

        subject = self._options.subjects[0]
        found = self._asked(subject, "this schema", lambda: self._client.lookup_schema(subject, Schema(text, "AVRO")))
        return _id_of(found, self._place(subject))

    def _version(self, subject: str, version: int) -> RegisteredTexts:
        known = self._known.get((subject, version))
        if known is None:
            texts: dict[tuple[str, int], str] = {}
            schema_id = self._collect(subject, version, texts)
            known = self._known[subject, version] = RegisteredTexts(schema_id, tuple(texts.values()))
        return known

    def _collect(self, subject: str, version: int, texts: dict[tuple[str, int], str], depth: int = 0) -> int:
        """The id; the schema and before it those that it refers to are put into `texts`."""
        place = f"{self._place(subject)}, version {version}"
        found = self._asked(
            subject, f"version {version}", lambda: self._client.get_version(subject, version, deleted=True)
        )
        schema_id, schema = _id_of(found, place), found.schema
        text = getattr(schema, "schema_str", None)
        if not isinstance(text, str) or len(text) > PAYLOAD_SCHEMA_CHARS_MAX:
            raise _unavailable(f"{place} is no schema of up to {PAYLOAD_SCHEMA_CHARS_MAX} characters", remedy=_LOOK)
        if (schema.schema_type or "AVRO") != "AVRO":
            raise ConfigurationError(
                f"{place} is {schema.schema_type}, not AVRO", remedy="name another subject, or another format"
            )
        for reference in schema.references or ():
            if (reference.subject, reference.version) not in texts:
                if max(len(texts), depth) >= PAYLOAD_REFERENCES_MAX:
                    raise ConfigurationError(f"{place} refers to more than {PAYLOAD_REFERENCES_MAX} schemas")
                self._collect(reference.subject, reference.version, texts, depth + 1)
        texts[subject, version] = text
        return schema_id

    def _asked(self, subject: str, what: str, ask: Any) -> Any:
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return ask()
        except SchemaRegistryError as problem:
            if problem.http_status_code == NOT_FOUND:
                raise _unavailable(
                    f"{self._place(subject)} has no {what}: {reason_of(problem)}",
                    remedy="register the schema there, or name the subject by payloadSubject",
                ) from problem
            raise _unavailable(f"{self._place(subject)} refused: {reason_of(problem)}", remedy=_LOOK) from problem
        except Exception as problem:  # its client raises what its libraries for HTTP and JSON do
            raise _unavailable(
                f"{self._place(subject)} gave no {what}: {type(problem).__name__}: {reason_of(problem)}", remedy=_LOOK
            ) from problem

    def _place(self, subject: str) -> str:
        return f"subject {subject!r} of the schema registry {self._options.url}"


def _secret(path: str) -> str:
    """What a file holds, without space around it. It is in no error."""
    remedy = "the file holds the secret, one line of text"
    secret = text_of("payloadRegistrySecretFile", path, CLIENT_SECRET_BYTES_MAX, remedy).strip()
    if len(secret.splitlines()) != 1:
        what = "several lines" if secret else "nothing in it"
        raise ConfigurationError(f"option payloadRegistrySecretFile: {path} has {what}", remedy=remedy)
    return secret


_LOOK: Final = "look whether it is a registry, runs and can be reached from the driver; then start the query again, nothing is lost"


def _unavailable(text: str, *, remedy: str) -> SchemaUnavailableError:
    """The error; what this process knows is forgotten, because the client keeps answers, wrong ones too."""
    registry_of.cache_clear()
    return SchemaUnavailableError(text, remedy=remedy)


def _numbers(versions: Any, place: str) -> list[int]:
    if not isinstance(versions, list) or not versions or not all(isinstance(one, int) for one in versions):
        raise _unavailable(f"{place} has no list of versions", remedy=_LOOK)
    if len(versions) > PAYLOAD_SCHEMAS_MAX:
        raise ConfigurationError(f"{place} has {len(versions)} versions; {PAYLOAD_SCHEMAS_MAX} are allowed")
    return versions


def _id_of(found: Any, place: str) -> int:
    if not isinstance(found.schema_id, int) or not 0 <= found.schema_id < 2**31:
        raise _unavailable(f"{place} has no id", remedy=_LOOK)
    return found.schema_id


@functools.lru_cache(maxsize=PAYLOAD_REGISTRIES_MAX)
def registry_of(options: RegistryOptions) -> SchemaRegistry:
    """This process's view of a registry."""
    return SchemaRegistry(options)
