"""The route registry, rule by rule."""

from __future__ import annotations

from typing import Any, cast

import pytest

from orbitmq.limits import nameserver as limits
from orbitmq.nameserver import routes
from orbitmq.nameserver.routes import (
    BrokerKey,
    MinimumChange,
    Registration,
    RegistrationError,
    RouteTable,
    TopicQueues,
    Version,
)
from orbitmq.protocol.remoting.bodies import TopicQueueMappingInfo

SECOND_NS = 1_000_000_000
OWNER = cast(Any, object())
MAPPING_1 = TopicQueueMappingInfo("broker-a", "T", epoch=1)
MAPPING_2 = TopicQueueMappingInfo("broker-a", "T", epoch=2)
TWO_TOPICS = {"broker-a": TopicQueues(1, 1, 7), "T": TopicQueues(8, 8, 6)}


def master(**changes: Any) -> Registration:
    values: dict[str, Any] = {
        "cluster": "C",
        "address": "10.0.0.1:10911",
        "group": "broker-a",
        "broker_id": 0,
        "ha_address": "10.0.0.1:10912",
        "version": Version(1, 1),
        "topics": dict(TWO_TOPICS),
        "acting_master": False,
    }
    return Registration(**{**values, **changes})


def slave(**changes: Any) -> Registration:
    own = {"address": "10.0.0.2:10911", "broker_id": 1, "ha_address": "10.0.0.2:10912"}
    return master(**{**own, **changes})


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


def register(table: RouteTable, broker: Registration, now_ns: int = 0, **options: Any) -> routes.Registered:
    return table.register(broker, OWNER, now_ns, **options)


def remove(table: RouteTable, broker: Registration) -> MinimumChange | None:
    return table.remove(BrokerKey(broker.cluster, broker.address), broker.group)


# --- registration, in the order of its rules ------------------------------------------------------------------------


def test_group_and_cluster_appear(table: RouteTable) -> None:
    register(table, master())
    register(table, master(group="broker-b", address="10.0.0.9:1"))
    assert table.groups["broker-a"].addresses == {0: "10.0.0.1:10911"}
    assert {cluster: list(names) for cluster, names in table.clusters.items()} == {"C": ["broker-a", "broker-b"]}
    assert table.topics["T"]["broker-a"] == TopicQueues(8, 8, 6)


def test_acting_master_flag_is_that_of_the_latest_registration(table: RouteTable) -> None:
    register(table, master(acting_master=True, zone="z"))
    assert table.groups["broker-a"].acting_master
    assert table.groups["broker-a"].zone == "z"
    register(table, master(acting_master=None))
    assert not table.groups["broker-a"].acting_master
    assert table.groups["broker-a"].zone is None


def test_an_address_has_one_id(table: RouteTable) -> None:
    register(table, master())
    register(table, slave())
    register(table, slave(broker_id=0))
    assert table.groups["broker-a"].addresses == {0: "10.0.0.2:10911"}
    register(table, slave(broker_id=3))
    assert table.groups["broker-a"].addresses == {3: "10.0.0.2:10911"}


def test_older_state_at_another_address_is_ignored(table: RouteTable) -> None:
    register(table, master(version=Version(1, 1, 5)))
    stale = master(
        address="10.0.0.7:1", version=Version(9, 9, 4), topics={"X": TopicQueues(1, 1, 6), "Y": TopicQueues(1, 1, 6)}
    )
    before = table.changes
    assert register(table, stale).ignored
    assert table.groups["broker-a"].addresses == {0: "10.0.0.1:10911"}
    assert BrokerKey("C", "10.0.0.7:1") not in table.live
    assert "X" not in table.topics
    assert table.changes == before
    newer = master(address="10.0.0.7:1", version=Version(1, 1, 5))
    assert not register(table, newer).ignored
    assert table.groups["broker-a"].addresses == {0: "10.0.0.7:1"}


def test_unknown_id_with_a_single_topic_is_refused_without_a_trace(table: RouteTable) -> None:
    with pytest.raises(RegistrationError, match="single topic"):
        register(table, master(topics={"T": TopicQueues(1, 1, 6)}))
    assert (table.groups, table.clusters, table.live, table.topics, table.changes) == ({}, {}, {}, {}, 0)
    register(table, master())
    register(table, master(topics={"New": TopicQueues(1, 1, 6)}, version=Version(2, 2)))
    assert set(table.topics) == {"broker-a", "T", "New"}
    with pytest.raises(RegistrationError):
        register(table, slave(topics={"T": TopicQueues(1, 1, 6)}))


def test_no_topics_at_all_are_fine(table: RouteTable) -> None:
    register(table, master(topics={}))
    assert table.groups["broker-a"].addresses


def test_slaves_bring_no_topics(table: RouteTable) -> None:
    register(table, master())
    register(table, slave(version=Version(7, 7), topics={"S1": TopicQueues(1, 1, 6), "T": TopicQueues(2, 2, 2)}))
    assert set(table.topics) == {"broker-a", "T"}
    assert table.topics["T"]["broker-a"] == TopicQueues(8, 8, 6)


def test_topics_change_with_the_version_only(table: RouteTable) -> None:
    register(table, master())
    register(table, master(topics={**TWO_TOPICS, "T": TopicQueues(4, 4, 6)}))
    assert table.topics["T"]["broker-a"].read_count == 8
    for number, version in enumerate([Version(2, 1), Version(2, 2), Version(2, 2, 1)], start=1):
        register(table, master(topics={**TWO_TOPICS, "T": TopicQueues(number, 4, 6)}, version=version))
        assert table.topics["T"]["broker-a"].read_count == number


def test_missing_topics_are_added_under_the_same_version(table: RouteTable) -> None:
    register(table, master())
    table.delete_topic("T")
    register(table, master(topics={**TWO_TOPICS, "N": TopicQueues(1, 1, 6)}))
    assert set(table.topics) == {"broker-a", "T", "N"}


def test_prime_slave_brings_topics_without_write_permission(table: RouteTable) -> None:
    register(table, slave(broker_id=2, acting_master=True))
    assert table.topics["T"]["broker-a"].perm == 4
    register(
        table,
        slave(broker_id=1, address="10.0.0.3:1", acting_master=True, topics={"P": TopicQueues(1, 1, 6), **TWO_TOPICS}),
    )
    assert table.topics["P"]["broker-a"].perm == 4
    other = slave(
        broker_id=2, version=Version(5, 5), acting_master=True, topics={"Q": TopicQueues(1, 1, 6), **TWO_TOPICS}
    )
    register(table, other)
    assert "Q" not in table.topics


def test_prime_slave_of_a_group_without_acting_masters_keeps_its_permissions(table: RouteTable) -> None:
    register(table, slave(acting_master=False))
    assert table.topics["T"]["broker-a"].perm == 6


def test_slave_too_old_for_acting_masters_is_no_prime_slave(table: RouteTable) -> None:
    register(table, slave(acting_master=None))
    assert table.topics == {}


def test_listing_less_removes_nothing_unless_asked(table: RouteTable) -> None:
    register(table, master())
    less = master(topics={"broker-a": TopicQueues(1, 1, 7), "U": TopicQueues(1, 1, 6)}, version=Version(2, 2))
    register(table, less)
    assert set(table.topics) == {"broker-a", "T", "U"}
    register(table, less, delete_missing=True)
    assert set(table.topics) == {"broker-a", "U"}


def test_life_time_is_the_senders_or_two_minutes(table: RouteTable) -> None:
    register(table, master(), now_ns=5)
    assert table.live[BrokerKey("C", "10.0.0.1:10911")].deadline_ns == 5 + 120 * SECOND_NS
    register(table, master(timeout_ms=10_000), now_ns=7)
    assert table.next_deadline_ns() == 7 + 10 * SECOND_NS


def test_slave_learns_its_master(table: RouteTable) -> None:
    assert register(table, slave()).master_address is None
    assert register(table, master()).master_address is None
    result = register(table, slave())
    assert (result.master_address, result.master_ha_address) == ("10.0.0.1:10911", "10.0.0.1:10912")


def test_falling_minimum_is_told_to_the_others(table: RouteTable) -> None:
    register(table, slave(broker_id=2, acting_master=True))
    assert register(table, slave(broker_id=2, acting_master=True)).change is None
    change = register(table, slave(broker_id=1, address="10.0.0.3:1", acting_master=True)).change
    assert change == MinimumChange("broker-a", 1, "10.0.0.3:1", None, "10.0.0.2:10912", ("10.0.0.2:10911",))
    change = register(table, master(acting_master=True)).change
    assert change is not None
    assert set(change.tell) == {"10.0.0.2:10911", "10.0.0.3:1"}
    assert (change.broker_id, change.address, change.ha_address) == (0, "10.0.0.1:10911", "10.0.0.1:10912")


def test_groups_without_acting_masters_are_told_nothing(table: RouteTable) -> None:
    register(table, slave())
    assert register(table, master()).change is None


def test_filter_servers_follow_the_latest_registration(table: RouteTable) -> None:
    key = BrokerKey("C", "10.0.0.1:10911")
    register(table, master(filter_servers=["f:1"]))
    assert table.filter_servers == {key: ["f:1"]}
    register(table, master(filter_servers=[]))
    assert table.filter_servers == {}


def test_static_topic_mappings_follow_the_version(table: RouteTable) -> None:
    register(table, master(mappings={"T": MAPPING_1}))
    register(table, master(mappings={"T": MAPPING_2}))
    assert table.mappings == {"T": {"broker-a": MAPPING_1}}
    register(table, master(mappings={"T": MAPPING_2}, version=Version(2, 2)))
    assert table.mappings == {"T": {"broker-a": MAPPING_2}}
    table.delete_topic("T")
    assert table.mappings == {}


def test_unchanged_registration_changes_no_answer(table: RouteTable) -> None:
    register(table, master(filter_servers=None))
    before = table.changes
    register(table, master(filter_servers=None), now_ns=99)
    assert table.changes == before


def test_tables_are_bounded(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "NAMESERVER_BROKERS_MAX", 1)
    monkeypatch.setattr(routes, "NAMESERVER_TOPIC_ENTRIES_MAX", 3)
    register(table, master())
    with pytest.raises(RegistrationError, match="brokers"):
        register(table, slave())
    with pytest.raises(RegistrationError, match="topics"):
        register(table, master(topics={f"N{i}": TopicQueues(1, 1, 6) for i in range(2)}, version=Version(2, 2)))
    register(table, master(topics={**TWO_TOPICS, "N": TopicQueues(1, 1, 6)}, version=Version(2, 2)))
    with pytest.raises(RegistrationError):
        table.merge_topic("M", {"broker-a": TopicQueues(1, 1, 6)})
    assert limits.NAMESERVER_BROKERS_MAX > 1


def test_mapped_queues_are_bounded_and_counted_once(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "NAMESERVER_MAPPED_QUEUES_MAX", 3)

    def mapped(count: int, version: int) -> Registration:
        mapping = TopicQueueMappingInfo("broker-a", "T", curr_id_map={number: number for number in range(count)})
        return master(mappings={"T": mapping}, version=Version(version, version))

    register(table, mapped(2, 1))
    register(table, mapped(3, 2))
    with pytest.raises(RegistrationError, match="4 queues, at most 3"):
        register(table, mapped(4, 3))
    table.delete_topic("T")
    register(table, mapped(3, 4))


# --- life -----------------------------------------------------------------------------------------------------------


def test_expiry_is_strictly_after_the_timeout_and_signs_of_life_postpone_it(table: RouteTable) -> None:
    register(table, master(timeout_ms=1_000))
    assert table.expired(SECOND_NS) == []
    assert [live.group for live in table.expired(SECOND_NS + 1)] == ["broker-a"]
    table.touch(BrokerKey("C", "10.0.0.1:10911"), SECOND_NS)
    assert table.expired(SECOND_NS + 1) == []
    table.touch(BrokerKey("C", "nobody:1"), SECOND_NS)
    assert len(table.live) == 1


def test_last_address_takes_group_cluster_and_topics(table: RouteTable) -> None:
    register(table, master(filter_servers=["f:1"], mappings={"T": MAPPING_1}))
    register(table, master(group="broker-b", address="10.0.0.9:1"))
    remove(table, master())
    assert list(table.groups) == ["broker-b"]
    assert {cluster: list(names) for cluster, names in table.clusters.items()} == {"C": ["broker-b"]}
    assert table.topics["T"] == {"broker-b": TopicQueues(8, 8, 6)}
    remove(table, master(group="broker-b", address="10.0.0.9:1"))
    assert (table.groups, table.clusters, table.topics, table.live, table.filter_servers, table.mappings) == (
        {},
        {},
        {},
        {},
        {},
        {},
    )
    assert table.next_deadline_ns() is None


def test_master_gone_leaves_topics_as_they_are(table: RouteTable) -> None:
    register(table, master())
    register(table, slave())
    assert remove(table, master()) is None
    assert table.groups["broker-a"].addresses == {1: "10.0.0.2:10911"}
    assert table.topics["T"]["broker-a"].perm == 6


def test_master_gone_clears_the_write_bit_where_slaves_may_act(table: RouteTable) -> None:
    register(table, master(acting_master=True))
    register(table, slave(acting_master=True))
    register(table, slave(acting_master=True, broker_id=2, address="10.0.0.3:1"))
    change = remove(table, master())
    assert change == MinimumChange(
        "broker-a", 1, "10.0.0.2:10911", "10.0.0.1:10911", None, ("10.0.0.2:10911", "10.0.0.3:1")
    )
    assert table.topics["T"]["broker-a"].perm == 4
    assert remove(table, slave(address="10.0.0.3:1")) is None


def test_removing_what_is_not_there_changes_nothing(table: RouteTable) -> None:
    register(table, master())
    before = table.changes
    assert remove(table, slave()) is None
    assert remove(table, master(group="nobody")) is None
    assert table.changes == before


def test_broker_that_moved_to_another_cluster_survives_its_old_entry(table: RouteTable) -> None:
    register(table, master())
    register(table, master(cluster="D"))
    remove(table, master())
    assert table.groups["broker-a"].addresses == {0: "10.0.0.1:10911"}
    remove(table, master(cluster="D"))
    assert (table.groups, table.clusters) == ({}, {})


# --- topics ---------------------------------------------------------------------------------------------------------


def test_write_permission_of_a_group_until_its_next_version(table: RouteTable) -> None:
    register(table, master())
    register(table, master(group="broker-b", address="10.0.0.9:1"))
    assert table.set_write_perm("broker-a", writable=False) == 2
    assert table.topics["broker-a"]["broker-a"].perm == 5
    assert table.topics["T"] == {"broker-a": TopicQueues(8, 8, 4), "broker-b": TopicQueues(8, 8, 6)}
    register(table, master())
    assert table.topics["T"]["broker-a"].perm == 4
    assert table.set_write_perm("broker-a", writable=True) == 2
    assert table.topics["broker-a"]["broker-a"].perm == 7, "RocketMQ's name server gives 6, whatever it was before"
    table.set_write_perm("broker-a", writable=False)
    register(table, master(version=Version(2, 2)))
    assert table.topics["broker-a"]["broker-a"].perm == 7
    assert table.set_write_perm("nobody", writable=False) == 0


def test_write_permission_is_given_back_where_it_was_taken_and_nowhere_else(table: RouteTable) -> None:
    topics = {"T": TopicQueues(8, 8, 6), "old": TopicQueues(8, 8, 4), "broker-a": TopicQueues(1, 1, 7)}
    register(table, master(topics=topics))
    perms = lambda: {topic: table.topics[topic]["broker-a"].perm for topic in topics}  # noqa: E731
    assert table.set_write_perm("broker-a", writable=True) == 3
    assert perms() == {"T": 6, "old": 4, "broker-a": 7}, "nothing was taken"
    table.set_write_perm("broker-a", writable=False)
    table.set_write_perm("broker-a", writable=False)
    table.merge_topic("T", {"broker-a": TopicQueues(8, 8, 4)})
    assert table.set_write_perm("broker-a", writable=True) == 3
    assert perms() == {"T": 4, "old": 4, "broker-a": 7}, "who announced T meanwhile wants it read-only"
    table.set_write_perm("broker-a", writable=False)
    table.delete_topic("broker-a")
    assert table.set_write_perm("broker-a", writable=True) == 2


def test_deleting_a_topic_everywhere_or_in_one_cluster(table: RouteTable) -> None:
    register(table, master())
    register(table, master(cluster="D", group="broker-d", address="10.0.0.9:1"))
    table.delete_topic("T", "D")
    assert table.topics["T"] == {"broker-a": TopicQueues(8, 8, 6)}
    table.delete_topic("T", "nowhere")
    assert "T" in table.topics
    table.delete_topic("T")
    assert "T" not in table.topics
    table.delete_topic("T")


def test_one_topic_is_merged_for_known_groups(table: RouteTable) -> None:
    register(table, master())
    table.merge_topic("N", {"broker-a": TopicQueues(1, 2, 6), "nobody": TopicQueues(1, 1, 6)})
    assert table.topics["N"] == {"broker-a": TopicQueues(1, 2, 6)}
    table.merge_topic("M", {"nobody": TopicQueues(1, 1, 6)})
    assert "M" not in table.topics
    assert set(table.topics_of_cluster("C")) == {"broker-a", "T", "N"}
    assert table.topics_of_cluster("nowhere") == []
