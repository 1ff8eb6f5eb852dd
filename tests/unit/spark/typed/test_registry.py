"""What the driver learns from a schema registry, and what it says when there is nothing to learn."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka.schema_registry", reason="the extra 'typed' is not installed")

sys.path.insert(0, str(Path(__file__).parent))

from registry_server import RegistryServer

from orbitmq.errors import ConfigurationError, SchemaUnavailableError
from orbitmq.spark.given_options import GivenOptions
from orbitmq.spark.options import READ_OPTIONS
from orbitmq.spark.typed import registry as registry_module
from orbitmq.spark.typed.payload_options import RegistryOptions, payload_options
from orbitmq.spark.typed.registry import SchemaRegistry, registry_of

FIRST = json.dumps({"type": "record", "name": "A", "fields": [{"name": "id", "type": "int"}]})
SECOND = json.dumps({"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]})


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    found = RegistryServer()
    yield found
    found.close()


@pytest.fixture
def registry(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> SchemaRegistry:
    monkeypatch.setattr(registry_module, "PAYLOAD_REGISTRY_RETRIES", 0)
    return SchemaRegistry(RegistryOptions(url=server.url, subjects=("orders-value",)))


def test_versions_are_fetched_once_and_new_ones_are_seen(server: RegistryServer, registry: SchemaRegistry) -> None:
    first = server.register("orders-value", FIRST)
    assert registry.all() == {first: (FIRST,)}
    second = server.register("orders-value", SECOND)
    assert registry.all() == {first: (FIRST,), second: (SECOND,)}
    assert registry.newest() == (second, (SECOND,))
    assert registry.id_of(FIRST) == first
    assert sum("/versions/1" in path for path in server.requests) == 1


def test_schemas_that_a_schema_refers_to_come_before_it(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.register("item", FIRST)
    whole = json.dumps({"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]})
    server.register("orders-value", whole, [{"name": "A", "subject": "item", "version": 1}])
    assert registry.newest().texts == (FIRST, whole)


def test_references_that_lead_in_a_circle_end(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.register("orders-value", FIRST, [{"name": "A", "subject": "orders-value", "version": 1}])
    with pytest.raises(ConfigurationError, match="refers to more than 100 schemas"):
        registry.newest()


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (
            None,
            r"subject 'orders-value' of the schema registry http.* has no versions: .*404.*register the schema there",
        ),
        (404, r"has no versions: .*register the schema there"),
        (401, r"refused: .*401"),
        (500, r"refused: .*500"),
        (b"<html>", r"gave no versions: JSONDecodeError"),
        (b"{}", r"has no list of versions"),
        (b'["1"]', r"has no list of versions"),
        (b"[]", r"has no list of versions"),
    ],
)
def test_troubles_are_named(server: RegistryServer, registry: SchemaRegistry, trouble: Any, words: str) -> None:
    server.trouble = trouble
    with pytest.raises(SchemaUnavailableError, match=words):
        registry.all()


def test_a_registry_that_is_away_is_named_and_is_asked_again(server: RegistryServer, registry: SchemaRegistry) -> None:
    server.close()
    with pytest.raises(SchemaUnavailableError, match=r"gave no versions: ConnectError.*nothing is lost"):
        registry.newest()


@pytest.mark.parametrize(
    ("spoilt", "error", "words"),
    [
        ({"schemaType": "JSON"}, ConfigurationError, "version 1 is JSON, not AVRO"),
        ({"schema": None}, SchemaUnavailableError, "is no schema of up to"),
        ({"schema": "x" * 1_100_000}, SchemaUnavailableError, "is no schema of up to"),
        ({"id": "x"}, SchemaUnavailableError, "has no id"),
        ({"id": 2**31}, SchemaUnavailableError, "has no id"),
    ],
)
def test_what_is_no_schema_is_named(
    server: RegistryServer, registry: SchemaRegistry, spoilt: dict[str, Any], error: type[Exception], words: str
) -> None:
    server.register("orders-value", FIRST)
    server.subjects["orders-value"][0] |= spoilt
    with pytest.raises(error, match=words):
        registry.all()


def test_after_trouble_it_is_asked_anew(server: RegistryServer) -> None:
    """Its client keeps answers, and a wrong one would be kept as well."""
    options = RegistryOptions(url=server.url, subjects=("orders-value",))
    schema_id = server.register("orders-value", FIRST)
    right = dict(server.subjects["orders-value"][0])
    server.subjects["orders-value"][0]["id"] = "x"
    with pytest.raises(SchemaUnavailableError):
        registry_of(options).all()
    server.subjects["orders-value"][0] = right
    assert registry_of(options).all() == {schema_id: (FIRST,)}


def test_the_secret_comes_from_a_file(server: RegistryServer, tmp_path: Path) -> None:
    server.register("orders-value", FIRST)
    secret = tmp_path / "secret"
    options = RegistryOptions(url=server.url, subjects=("orders-value",), user="me", secret_file=str(secret))
    with pytest.raises(ConfigurationError, match="payloadRegistrySecretFile"):
        SchemaRegistry(options)
    secret.write_text("hidden\n", encoding="ascii")
    assert SchemaRegistry(options).newest().texts == (FIRST,)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hidden\xff", "is no text in UTF-8"),
        (b"hidden\nsecond\n", "has several lines"),
        (b"hidden\r\nsecond", "has several lines"),
        (b" \n\n", "has nothing in it"),
        (b"hidden" * 100_000, "has more than 65536 bytes"),
    ],
)
def test_a_secret_that_is_not_one_line_of_text_is_refused_and_not_shown(
    tmp_path: Path, content: bytes, said: str
) -> None:
    secret = tmp_path / "file"
    secret.write_bytes(content)
    options = RegistryOptions(url="http://host", subjects=("orders-value",), user="me", secret_file=str(secret))
    with pytest.raises(
        ConfigurationError, match=f"option payloadRegistrySecretFile: .*file {said} .*one line of text"
    ) as caught:
        SchemaRegistry(options)
    told = "".join(traceback.format_exception(caught.value))
    assert not any(word in told for word in ("hidden", "second", "0xff"))


def test_a_pipe_is_no_secret(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    options = RegistryOptions(url="http://host", subjects=("s",), user="me", secret_file=str(tmp_path / "pipe"))
    with pytest.raises(ConfigurationError, match="pipe is a directory, pipe or device, not a file"):
        SchemaRegistry(options)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"payload": "avro"}, "nothing says by which schema the payloads were written"),
        ({"payload": "avro", "payloadSchema": FIRST, "payloadFraming": "confluent"}, "needs the schemas by their ids"),
        ({"payload": "avro", "payloadRegistry": "registry:8081"}, "is no address of a registry"),
        ({"payload": "avro", "payloadRegistry": "http://me:secret@host"}, r"'host' is no address of a registry"),
        ({"payload": "avro", "payloadRegistry": "http://host"}, "nothing says which subject of the registry counts"),
        (
            {"payload": "avro", "payloadRegistry": "http://host", "topic": "t", "payloadFraming": "none"},
            "is not one of confluent",
        ),
        (
            {"payload": "avro", "payloadRegistry": "http://host", "topic": "t", "payloadRegistryUser": "me"},
            "go together",
        ),
        (
            {"payload": "avro", "payloadSchema": FIRST, "payloadSubject": "s"},
            "payloadSubject has no effect without payloadRegistry",
        ),
        (
            {"payload": "json", "payloadRegistry": "http://host"},
            "payloadRegistry has no effect on payloads of the format json",
        ),
        ({"payload": "json", "payloadMessage": "m"}, "payloadMessage has no effect"),
        ({"payload": "protobuf", "payloadSchema": "orders.pb"}, "need payloadSchema and payloadMessage"),
        ({"payload": "json", "payloadSchema": "x" * 1_100_000}, "has 1100000 characters; 1048576 are allowed"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        payload_options(GivenOptions(given, READ_OPTIONS, "reading"))
    assert "secret@" not in str(caught.value)


def test_the_subject_follows_from_the_topic() -> None:
    found = payload_options(
        GivenOptions(
            {"payload": "avro", "payloadRegistry": "http://host", "subscribe": "orders"}, READ_OPTIONS, "reading"
        )
    )
    assert found is not None
    assert found.registry is not None
    assert found.registry.subjects == ("orders-value",)
