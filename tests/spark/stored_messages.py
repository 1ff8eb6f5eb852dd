"""What a broker has in a topic, read by the client."""

from __future__ import annotations

from collections import Counter

from orbitmq.client.stored import StoredMessage
from orbitmq.sync import connect


def stored(name_server: str, topic: str) -> list[StoredMessage]:
    """All messages of a topic, queue by queue in their order."""
    found: list[StoredMessage] = []
    with connect(name_server) as client, client.pull_consumer("readers-of-tests") as consumer:
        for queue in consumer.queues(topic):
            at, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while at < end:
                pulled = consumer.pull(queue, at, max_messages=1_000)
                found += pulled.messages
                at = pulled.next_offset
    return found


def bodies(name_server: str, topic: str) -> Counter[bytes]:
    """The bodies, and how often each is there."""
    return Counter(bytes(message.body) for message in stored(name_server, topic))
