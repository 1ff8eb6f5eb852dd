"""Words of policies: which mean something, and what is said of those that do not."""

from __future__ import annotations

import pytest

from orbitmq.access.policies import (
    ALL_ACTIONS,
    Decision,
    Match,
    ResourcePattern,
    action_words,
    read_actions,
    read_entry,
    read_resource,
    read_source,
)
from orbitmq.protocol.remoting.requests import Action, ResourceType


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("*", ResourcePattern(None, Match.ALL)),
        ("Topic:*", ResourcePattern(ResourceType.TOPIC, Match.ALL)),
        ("Topic:orders", ResourcePattern(ResourceType.TOPIC, Match.EXACT, "orders")),
        ("Group:%RETRY%g", ResourcePattern(ResourceType.GROUP, Match.EXACT, "%RETRY%g")),
        ("Cluster:c*", ResourcePattern(ResourceType.CLUSTER, Match.PREFIX, "c")),
        ("Namespace:n", ResourcePattern(ResourceType.NAMESPACE, Match.EXACT, "n")),
    ],
)
def test_a_resource_is_read_and_written(text: str, pattern: ResourcePattern) -> None:
    assert read_resource(text) == pattern
    assert read_resource(text.lower()) == read_resource(text)._replace(name=pattern.name.lower())
    assert pattern.text == text


@pytest.mark.parametrize(
    "text", ["", "Topic", "Topic:", "Any:orders", "Queue:q", "Topic:a*b", "Topic:**", "topic orders"]
)
def test_a_resource_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="resource"):
        read_resource(text)


def test_all_stands_for_every_action() -> None:
    assert read_actions(["Pub", "ALL"]) == ALL_ACTIONS
    assert action_words(ALL_ACTIONS) == ["All"]
    assert action_words(read_actions(["sub", "Pub"])) == ["Pub", "Sub"]


@pytest.mark.parametrize("words", [[], ["Any"], ["Unknown"], ["Pub", "Write"]])
def test_an_action_that_means_nothing_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="action"):
        read_actions(words)


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.1.2.3", "10.1.2.3/32"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("::1", "::1/128"),
        ("fd00::7/8", "fd00::/8"),
        ("::ffff:10.1.2.3", "10.1.2.3/32"),
        ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
        ("::/0", "::/0"),
    ],
)
def test_a_source_is_an_address_or_a_network(text: str, network: str) -> None:
    assert str(read_source(text)) == network


@pytest.mark.parametrize("text", ["", "localhost", "10.0.0.0/33", "10.0.0", "10.0.0.*", "::1/129", "1.2.3.4/8/8"])
def test_a_source_that_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="source"):
        read_source(text)


def test_an_entry_is_made_of_words() -> None:
    entry = read_entry("Topic:orders", ["Pub"], [" 10.0.0.0/8 "], "deny")
    assert (entry.actions, entry.sources, entry.decision) == ({Action.PUB}, ("10.0.0.0/8",), Decision.DENY)
    with pytest.raises(ValueError, match="decision is missing"):
        read_entry("Topic:orders", ["Pub"], [], None)
    with pytest.raises(ValueError, match="decision 'Maybe' is none of Allow, Deny"):
        read_entry("Topic:orders", ["Pub"], [], "Maybe")


def test_an_error_shows_no_more_than_is_needed_to_find_the_place() -> None:
    for read in (read_resource, read_source):
        with pytest.raises(ValueError, match="xxx") as caught:
            read("x" * 1_000_000)
        assert len(str(caught.value)) < 250
