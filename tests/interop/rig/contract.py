"""What every client may expect of a broker, asked of the findings of one `Scenario`.

A test module derives one class per client from `ClientContract` and gives the fixture `scenario`. What a client cannot
do at all (see `Abilities`) is not asked: those methods live in classes of their own.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict

from rig.scenario import COUNT, DELAY_MS, DELAYED_COUNT, FAILING_COUNT, QUEUES, RETRY_MS, Scenario, expected_bodies

PROMPT_MS = 1000
"""A waiting pull is answered at once; a second leaves room for a loaded machine with two cores."""
LATE_MS = 5000
"""Less than to the next delay level, whose delay a message of this level would not take."""
REBALANCE_MS = 33_000
"""The retry topic is made when the group appears; a client may learn of it only by its next look at the routes (30 s)."""


class ClientContract:
    """Plain, tagged, delayed, large and failing messages: every client can do these."""

    def test_no_send_failed(self, scenario: Scenario) -> None:
        sends = [event for events in scenario.sent.values() for event in events if event["status"] != "ONEWAY"]
        assert len(sends) >= COUNT
        assert {event["status"] for event in sends} == {"SEND_OK"}

    def test_client_reported_no_error(self, scenario: Scenario) -> None:
        # ali-ons reports the ordinary answer "no offset yet" of a new group, and the failures that the scenario asks for.
        known = ("readOffset failed", "fails as asked")
        assert [e for e in scenario.client_errors if not any(text in e["error"] for text in known)] == []

    def test_plain_messages_arrive_once(self, scenario: Scenario) -> None:
        assert scenario.bodies("plain") == expected_bodies("plain", COUNT)

    def test_received_as_sent(self, scenario: Scenario) -> None:
        key = f"{scenario.name}key"
        assert {(e["body"], e["keys"]) for e in scenario.received("plain")} == {
            (f"plain-{i}", f"{key}-{i}") for i in range(COUNT)
        }
        assert {e["topic"] for e in scenario.received("plain")} == {scenario.topic("plain")}
        assert {e["reconsumeTimes"] for e in scenario.received("plain")} == {0}

    def test_producer_used_every_queue(self, scenario: Scenario) -> None:
        assert {e["queueId"] for e in scenario.received("plain")} == set(range(QUEUES))

    def test_stored_once_with_offsets_in_order(self, scenario: Scenario) -> None:
        stored = scenario.stored("plain")
        assert Counter(record.body.decode() for record in stored) == expected_bodies("plain", COUNT)
        assert all(record.crc_ok for record in stored)
        offsets = defaultdict(list)
        for record in stored:
            offsets[record.queue_id].append(record.queue_offset)
        assert all(found == list(range(len(found))) for found in offsets.values())

    def test_waiting_pull_is_answered_promptly(self, scenario: Scenario) -> None:
        waits = [e["receivedAt"] - e["storeAt"] for e in scenario.received("plain")]
        assert statistics.median(waits) < PROMPT_MS

    def test_only_subscribed_tags_arrive(self, scenario: Scenario) -> None:
        assert scenario.bodies("tagged") == expected_bodies("TagA", COUNT // 2) + expected_bodies("TagC", COUNT // 2)
        assert {e["tags"] for e in scenario.received("tagged")} == {"TagA", "TagC"}

    def test_other_tags_are_stored(self, scenario: Scenario) -> None:
        assert sum(record.properties.get("TAGS") == "TagB" for record in scenario.stored("tagged")) == COUNT // 2

    def test_delayed_messages_are_never_early(self, scenario: Scenario) -> None:
        assert scenario.bodies("delayed") == expected_bodies("delayed", DELAYED_COUNT)
        waits = [e["receivedAt"] - e["bornAt"] for e in scenario.received("delayed")]
        assert min(waits) >= DELAY_MS
        assert max(waits) < DELAY_MS + LATE_MS
        assert {e["topic"] for e in scenario.received("delayed")} == {scenario.topic("delayed")}

    def test_large_bodies_come_back_whole(self, scenario: Scenario) -> None:
        """Above 4 KiB the clients compress; the body must come back as it was."""
        sizes = [e["bodySize"] for e in scenario.received("big")]
        assert sizes == [20_000, 20_000]
        assert len({e["bodySha1"] for e in scenario.received("big")}) == 2
        assert sorted(record.body[:5] for record in scenario.stored("big")) == [b"big-0", b"big-1"]

    def test_failed_message_is_retried_by_level_three(self, scenario: Scenario) -> None:
        assert scenario.bodies("retry") == expected_bodies("retry", FAILING_COUNT, times=2)
        for body in expected_bodies("retry", FAILING_COUNT):
            first, second = [e for e in scenario.received("retry") if e["body"] == body]
            assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
            assert RETRY_MS <= second["receivedAt"] - first["receivedAt"] < RETRY_MS + REBALANCE_MS
            assert second["topic"] == scenario.topic("retry"), "the client shows the original topic"

    def test_progress_is_committed_at_the_end(self, scenario: Scenario) -> None:
        """A closing client leaves its offsets: the next member of the group continues behind the last message."""
        group, topic = scenario.group("plain"), scenario.topic("plain")
        with scenario.broker.wire() as wire:
            left = [(wire.committed(group, topic, q), wire.max_offset(topic, q)) for q in range(QUEUES)]
        assert all(committed == end for committed, end in left), left

    def test_group_is_empty_after_close(self, scenario: Scenario) -> None:
        with scenario.broker.wire() as wire:
            assert wire.members(scenario.group("plain")) == []


class OnewayContract:
    """Clients with a one-way send."""

    def test_oneway_messages_arrive_once(self, scenario: Scenario) -> None:
        assert scenario.bodies("oneway") == expected_bodies("oneway", COUNT)


class UnknownTopicContract:
    """Clients that send to a topic nobody created."""

    def test_topic_is_created_by_the_first_send(self, scenario: Scenario) -> None:
        assert [event["status"] for event in scenario.sent["auto"]] == ["SEND_OK"] * 3
        assert Counter(record.body.decode() for record in scenario.stored("auto")) == expected_bodies("auto", 3)


class DeadLetterContract:
    """Clients that can say how often a message is tried."""

    def test_hopeless_message_ends_in_the_dead_letter_topic(self, scenario: Scenario) -> None:
        assert scenario.bodies("dead") == expected_bodies("dead", FAILING_COUNT, times=2)
        with scenario.broker.wire() as wire:
            dead = wire.read_queue(f"%DLQ%{scenario.group('dead')}", 0)
        assert Counter(record.body.decode() for record in dead) == expected_bodies("dead", FAILING_COUNT)
        assert {record.properties.get("RETRY_TOPIC") for record in dead} == {scenario.topic("dead")}


class BatchContract:
    """Clients with batches that the broker splits."""

    def test_batch_becomes_single_messages_in_order(self, scenario: Scenario) -> None:
        assert scenario.bodies("batch") == expected_bodies("batch", COUNT)
        stored = scenario.stored("batch")
        assert [record.body.decode() for record in stored] == [f"batch-{i}" for i in range(COUNT)]
        assert len({record.queue_id for record in stored}) == 1
        (sent,) = scenario.sent["batch"]
        # The broker's ids, not the client's: 5.3.3 prints other unique ids than those it sent.
        places = [int(offset_id[16:], 16) for offset_id in sent["offsetMsgId"].split(",")]
        assert places == [record.physical_offset for record in stored]
        assert sent["queueOffset"] == stored[0].queue_offset
