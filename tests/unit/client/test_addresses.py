"""Address texts and the choice of a name server."""

from __future__ import annotations

import random

import pytest

from orbitmq.client.addresses import NameServerChoice, parse_addresses, split_address
from orbitmq.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("localhost:9876", ("localhost", 9876)), ("[::1]:1", ("::1", 1)), ("10.0.0.1:65535", ("10.0.0.1", 65535))],
)
def test_split(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", "localhost", ":9876", "host:", "host:0", "host:65536", "host:x", "::1:9876"])
def test_what_is_no_address_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        split_address(text)
    assert caught.value.remedy


def test_lists() -> None:
    assert parse_addresses("a:1;b:2; a:1 ;") == ("a:1", "b:2")
    assert parse_addresses("http://a:1/,b:2") == ("a:1", "b:2")
    assert parse_addresses(["a:1", "b:2"]) == ("a:1", "b:2")
    with pytest.raises(ConfigurationError):
        parse_addresses(" ; ")
    with pytest.raises(ConfigurationError):
        parse_addresses(f"h:{port}" for port in range(1, 70))


def test_one_server_stays_in_use_until_it_fails() -> None:
    choice = NameServerChoice(["a:1", "b:2", "c:3"], random.Random(1))
    first = choice.current
    assert choice.current == first
    choice.failed(first)
    second = choice.current
    assert second != first
    choice.failed(first)  # another caller has moved on already
    assert choice.current == second


def test_candidates_visit_every_server_once() -> None:
    choice = NameServerChoice(["a:1", "b:2", "c:3"])
    visited = []
    for address in choice.candidates():
        visited.append(address)
        choice.failed(address)
    assert sorted(visited) == ["a:1", "b:2", "c:3"]
