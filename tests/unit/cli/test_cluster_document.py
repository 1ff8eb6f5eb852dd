"""Files of clusters: written and read again; what is none is refused before anything else, and says no password."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbitmq.cli.clusters import cluster_document as file
from orbitmq.cli.clusters.cluster_document import ClusterDocument, ClusterPart, decode, encode, parts_named, renamed
from orbitmq.errors import ConfigurationError
from orbitmq.limits.cli import CLUSTER_FILE_BYTES_MAX

ON = ["broker-a"]
RECURRING = file.RecurringRow(name="daily", topic="orders", body="hello", cron="0 9 * * MON", zone="Europe/Berlin")
FULL = ClusterDocument(
    format=file.FORMAT,
    version=file.VERSION,
    brokers={"broker-a": "Main"},
    not_contained=list(file.NOT_CONTAINED),
    topics=[file.TopicRow(topic="orders", read_queues=4, write_queues=4, perm=6, brokers=ON)],
    groups=[file.GroupRow(group="billing", settings={"retryMaxTimes": 3}, brokers=ON)],
    users=[file.UserRow(user="shop", type="Normal", status="enable", password="hidden-one", brokers=ON)],
    policies=[
        file.PolicyRow(
            user="shop", policy="Custom", resource="Topic:orders", actions=["Pub"], decision="Allow", brokers=ON
        )
    ],
    offsets=[file.OffsetRow(group="billing", topic="orders", broker="broker-a", offsets={0: 3, 1: 0})],
    recurring=[
        RECURRING,
        file.RecurringRow(name="often", topic="orders", body="/wA=", body_encoding="base64", every_ms=90_000),
    ],
)


def changed(**members: Any) -> bytes:
    """The file with other members."""
    return json.dumps({**json.loads(encode(FULL)), **members}).encode()


def row(part: str, **members: Any) -> bytes:
    """The file with a part that has one row, the first one with other members."""
    first = json.loads(encode(FULL))[part][0]
    return changed(**{part: [{**first, **members}]})


def test_what_was_written_is_read() -> None:
    data = encode(FULL)
    assert decode(data) == FULL
    assert data.endswith(b"}\n")
    assert b'\n  "topics": [\n' in data, "it is for people as well"


def test_a_part_that_was_not_exported_is_not_an_empty_one() -> None:
    part = ClusterDocument(format=file.FORMAT, version=file.VERSION, brokers={}, topics=[])
    again = decode(encode(part))
    assert (again.topics, again.groups) == ([], None)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"users": []}', b'{"format": "x", "version": 1}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_file_of_a_cluster_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="it is no file of `orbitmq cluster export`"):
        decode(data)


def test_a_newer_version_is_named_before_anything_else_is_looked_at() -> None:
    with pytest.raises(
        ValueError, match="it has version 2, and this orbitmq reads version 1: a newer orbitmq wrote it"
    ):
        decode(changed(version=2, topics="in another form"))


BROKEN = {
    "a member that is not known": (changed(colour="red"), "colour"),
    "a member of a row that is not known": (row("topics", colour="red"), "colour"),
    "a row that lacks something": (changed(topics=[{"topic": "orders"}]), "read_queues"),
    "a number that is none": (row("topics", perm="all"), "perm"),
    "a name that no topic may have": (row("topics", topic="a b"), "a b"),
    "a name that no group may have": (row("groups", group="a b"), "a b"),
    "a setting that no group has": (row("groups", settings={"retries": 3}), "has no setting 'retries'"),
    "a value that no setting has": (row("groups", settings={"retryMaxTimes": "many"}), "SubscriptionGroupConfig"),
    "a broker that is not among its brokers": (row("topics", brokers=["broker-z"]), "broker-z"),
    "a topic that stands there twice": (changed(topics=json.loads(encode(FULL))["topics"] * 2), "twice for broker-a"),
    "a type that no user has": (row("users", type="King"), "type of user 'shop'"),
    "an action that does not exist": (row("policies", actions=["Fly"]), "Fly"),
    "a resource that does not exist": (row("policies", resource="Moon:x"), "Moon"),
    "an offset before the first": (row("offsets", offsets={"0": -1}), "offsets"),
    "a queue without a number": (row("offsets", offsets={"x": 1}), "offsets"),
    "two rules at once": (row("recurring", every_ms=1_000), "cron expression or an interval"),
    "an overlap that does not exist": (row("recurring", overlap="maybe"), "maybe"),
    "an interval beyond all years": (row("recurring", cron=None, every_ms=2**62), "every_ms"),
    "a body that is no base64": (row("recurring", body="%", body_encoding="base64"), "no base64"),
    "an encoding that is not known": (row("recurring", body_encoding="rot13"), "body_encoding"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_with_its_place(name: str) -> None:
    data, says = BROKEN[name]
    with pytest.raises(ValueError, match=says):
        decode(data)


def test_no_error_and_no_text_shows_a_password() -> None:
    assert "hidden-one" not in repr(FULL)
    for members in ({"password": ["hidden-one"]}, {"type": "hidden-one"}, {"status": "hidden-one"}):
        with pytest.raises(ValueError, match=r"user") as caught:
            decode(row("users", **members))
        assert "hidden-one" not in str(caught.value)


def test_a_file_that_could_not_be_read_again_is_not_written() -> None:
    offsets = dict.fromkeys(range(20000), 10**15)
    rows = [file.OffsetRow(group=f"g{number}", topic="t", broker="b", offsets=offsets) for number in range(150)]
    large = ClusterDocument(format=file.FORMAT, version=file.VERSION, brokers={"b": "Main"}, offsets=rows)
    with pytest.raises(ConfigurationError, match=f"CLUSTER_FILE_BYTES_MAX = {CLUSTER_FILE_BYTES_MAX}"):
        encode(large)


def test_parts_are_named_in_any_order_and_done_in_theirs() -> None:
    assert parts_named(None) == tuple(ClusterPart)
    assert parts_named("offsets, topics") == (ClusterPart.TOPICS, ClusterPart.OFFSETS)
    for text in ("", "topics,messages"):
        with pytest.raises(ConfigurationError, match="names no part"):
            parts_named(text)


def test_the_settings_of_a_group_are_those_of_its_broker() -> None:
    assert FULL.groups is not None
    config = FULL.groups[0].config()
    assert (config.group_name, config.retry_max_times, config.consume_enable) == ("billing", 3, True)


# --- other brokers


def test_brokers_may_have_other_names_elsewhere() -> None:
    there = renamed(FULL, {"broker-a": "broker-x"})
    assert there.brokers == {"broker-x": "Main"}
    rows = [*(there.topics or ()), *(there.groups or ()), *(there.users or ()), *(there.policies or ())]
    assert {broker for each in rows for broker in each.brokers} == {"broker-x"}
    assert [each.broker for each in there.offsets or ()] == ["broker-x"]
    assert renamed(there, {"broker-x": "broker-a"}) == FULL


def test_two_that_change_their_names_with_each_other() -> None:
    both = decode(changed(brokers={"broker-a": "Main", "broker-b": "Side"}))
    there = renamed(both, {"broker-a": "broker-b", "broker-b": "broker-a"})
    assert there.brokers == {"broker-b": "Main", "broker-a": "Side"}
    assert [topic.brokers for topic in there.topics or ()] == [["broker-b"]]


def test_several_brokers_become_one_where_they_agree() -> None:
    brokers = {"broker-a": "Main", "broker-b": "Main"}
    names = {"broker-a": "one", "broker-b": "one"}
    topic = json.loads(encode(FULL))["topics"][0]
    agreed = decode(changed(brokers=brokers, topics=[{**topic, "brokers": ["broker-a", "broker-b"]}]))
    assert [each.brokers for each in renamed(agreed, names).topics or ()] == [["one"]]
    other = {**topic, "read_queues": 8, "brokers": ["broker-b"]}
    with pytest.raises(ValueError, match="topic 'orders' stands there twice for one"):
        renamed(decode(changed(brokers=brokers, topics=[topic, other])), names)
    offsets = json.loads(encode(FULL))["offsets"][0]
    with pytest.raises(ValueError, match="offsets of group 'billing' stands there twice for orders, one"):
        renamed(decode(changed(brokers=brokers, offsets=[offsets, {**offsets, "broker": "broker-b"}])), names)


def test_a_broker_that_is_not_in_the_file_is_named() -> None:
    with pytest.raises(ValueError, match="broker 'broker-z' is not among its brokers: broker-a"):
        renamed(FULL, {"broker-z": "broker-a"})
