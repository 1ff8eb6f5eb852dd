"""The address of an engine: read purely, shown without losing anything, and refused with what to write instead."""

from __future__ import annotations

import pytest

from orbitmq.replication.engine_address import EngineAddress, EngineEndpoint, parse_engine


def parsed(text: str) -> EngineAddress:
    address = parse_engine(text)
    assert address is not None
    return address


def test_an_empty_text_names_no_engine() -> None:
    assert parse_engine("") is None


def test_what_is_left_out_has_its_usual_value() -> None:
    address = parsed("etcd://one")
    assert address.endpoints == (EngineEndpoint("one", 2379),)
    assert (address.prefix, address.user, address.tls) == ("orbitmq", "", False)


def test_every_part_is_read() -> None:
    address = parsed("etcd://me%40home@one:1,[::1]:2,three/a/b?tls=true&ca=/c/ca.pem&cert=/c/c.pem&key=/c/k.pem")
    assert address.endpoints == (EngineEndpoint("one", 1), EngineEndpoint("::1", 2), EngineEndpoint("three", 2379))
    assert (address.prefix, address.user, address.tls) == ("a/b", "me@home", True)
    assert (address.ca, address.cert, address.key) == ("/c/ca.pem", "/c/c.pem", "/c/k.pem")


def test_files_of_tls_ask_for_tls() -> None:
    assert parsed("etcd://one?ca=/ca.pem").tls
    assert parsed("etcd://one/?cert=/c.pem").tls


@pytest.mark.parametrize(
    "text",
    ["etcd://one", "etcd://u%25@one:1,[::1]:2/p/q?ca=/a%20b&cert=c&key=k", "etcd://one?tls=true", "etcd://a,b,c/x/"],
)
def test_an_address_is_shown_as_one_that_reads_the_same(text: str) -> None:
    assert parsed(str(parsed(text))) == parsed(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("one:2379", "write etcd://"),
        ("http://one", "http is no engine"),
        ("etcd://", "write etcd://"),
        ("etcd://me:secret@one", "the password has its own file"),
        ("etcd://me%3Asecret@one", "the password has its own file"),
        ("etcd://@one", "user's name"),
        ("etcd://one:0", "is no endpoint"),
        ("etcd://one:65536", "is no endpoint"),
        ("etcd://one,", "is no endpoint"),
        ("etcd://::1", "is no endpoint"),
        ("etcd://b\u00fccher", "is no endpoint"),
        ("etcd://a..b", "is no endpoint"),
        ("etcd://" + "a" * 64, "is no endpoint"),
        ("etcd://one,one:2379", "name each endpoint once"),
        ("etcd://" + ",".join(f"h{n}" for n in range(10)), "9 endpoints at most"),
        ("etcd://one/a//b", "write a prefix"),
        ("etcd://one/a b", "write a prefix"),
        ("etcd://one?tls=1", "tls=true or tls=false"),
        ("etcd://one?tls=true&tls=true", "each option once"),
        ("etcd://one?ca=", "a value to each"),
        ("etcd://one?ca", "name=value"),
        ("etcd://one?key=k", "write cert="),
        ("etcd://one?tls=false&ca=c", "tls=true where"),
        ("etcd://one?password=x", "password: there are the options"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("?", r"\?")):
        parse_engine(text)
