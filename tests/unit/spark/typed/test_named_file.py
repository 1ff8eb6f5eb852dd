"""Files that options name: what is no file of a bounded size is told, and nothing waits for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.limits.spark import PAYLOAD_SCHEMA_CHARS_MAX
from orbitmq.spark.typed.decoding import given_schema
from orbitmq.spark.typed.named_file import content_of, text_of
from orbitmq.spark.typed.payload_options import PayloadFormat, PayloadOptions

SCHEMA = json.dumps({"type": "record", "name": "Größe", "fields": [{"name": "id", "type": "int"}]}, ensure_ascii=False)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    file = tmp_path / "schema"
    file.write_bytes(b"12345")
    assert content_of("o", str(file), 5, "r") == b"12345"
    with pytest.raises(ConfigurationError, match=r"option o: .*schema has more than 4 bytes \(do this\)"):
        content_of("o", str(file), 4, "do this")


def test_a_link_to_a_file_is_one(tmp_path: Path) -> None:
    """As secrets of Kubernetes are."""
    (tmp_path / "there").write_text("x")
    (tmp_path / "link").symlink_to("there")
    assert text_of("o", str(tmp_path / "link"), 5, "r") == "x"


@pytest.mark.parametrize("what", ["directory", "pipe", "/dev/zero"])
def test_what_is_no_file_is_told_at_once(tmp_path: Path, what: str) -> None:
    path = tmp_path / what  # an absolute name stays what it is
    if what == "directory":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    with pytest.raises(ConfigurationError, match=f"option o: .*{what} is a directory, pipe or device, not a file"):
        content_of("o", str(path), 5, "r")


@pytest.mark.parametrize(("name", "why"), [("nothing", "No such file"), ("a\0b", "null"), ("x" * 300, "too long")])
def test_what_cannot_be_opened_is_told(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"cannot be read: .*{why}"):
        content_of("o", str(tmp_path / name), 5, "r")


def test_bytes_that_are_no_text_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "schema"
    file.write_bytes(b"abc\xff")
    with pytest.raises(ConfigurationError, match="schema is no text in UTF-8") as caught:
        text_of("o", str(file), 5, "r")
    assert "abc" not in str(caught.value)
    assert "0xff" not in str(caught.value)
    file.write_bytes(b"\xef\xbb\xbfabc")
    assert text_of("o", str(file), 6, "r") == "abc"


def test_the_schema_of_avro_is_a_text_and_of_protobuf_are_bytes(tmp_path: Path) -> None:
    file = tmp_path / "order"
    avro = PayloadOptions(format=PayloadFormat.AVRO, schema=str(file))
    protobuf = PayloadOptions(format=PayloadFormat.PROTOBUF, schema=str(file), message="shop.Order")
    file.write_text(SCHEMA, encoding="utf-8")
    assert given_schema(avro).texts == (SCHEMA,)
    file.write_bytes(b"\n\xff")
    assert given_schema(protobuf).descriptors == b"\n\xff"
    with pytest.raises(ConfigurationError, match=r"option payloadSchema: .*order is no text in UTF-8 \(name the file"):
        given_schema(avro)
    file.write_bytes(b"x" * (PAYLOAD_SCHEMA_CHARS_MAX + 1))
    for options in (avro, protobuf):
        with pytest.raises(ConfigurationError, match=f"has more than {PAYLOAD_SCHEMA_CHARS_MAX} bytes"):
            given_schema(options)
