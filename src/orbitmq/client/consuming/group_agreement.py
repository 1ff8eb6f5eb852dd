"""Whether the members of a consumer group agree with each other, judged from what a broker knows of the group.

A broker keeps one subscription per group and topic, that of the newest heartbeat. Members that subscribe differently overwrite each
other's, and each then misses messages of queues the other owns, without any error. Two members with one client id are both given the
same queues.

Rules of this file
1. Pure: own settings and a broker's answer in, sentences for people out; none means agreement.
2. Retry topics are left out: consumers of every kind subscribe to them in their own way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from orbitmq.client.consuming.subscription import Subscription
from orbitmq.protocol.filtering.expression import TAG
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import ConsumerConnection, MessageModel


def different_subscriptions(
    own: Mapping[str, Subscription], own_model: MessageModel, group: ConsumerConnection
) -> list[str]:
    """In what other members of the group differ from this one."""
    found: list[str] = []
    theirs = {topic: data for topic, data in group.subscription_table.items() if not topic.startswith(RETRY_PREFIX)}
    mine = {topic: data for topic, data in own.items() if not topic.startswith(RETRY_PREFIX)}
    for topic in sorted(mine.keys() | theirs.keys()):
        if topic not in theirs:
            found.append(f"this member subscribes to {topic!r}, another does not")
        elif topic not in mine:
            found.append(f"another member subscribes to {topic!r}, this one does not")
        else:
            data = theirs[topic]
            expression, subscription = data.sub_string or "*", mine[topic]
            same = (
                set(data.tags_set) == set(subscription.filter.tags)
                if subscription.filter.tags and data.tags_set
                else expression == subscription.expression
            )
            if (data.expression_type or TAG) != subscription.expression_type or not same:
                found.append(f"of {topic!r} this member wants {subscription.expression!r}, another {expression!r}")
    if group.message_model is not None and group.message_model is not own_model:
        found.append(f"this member is {own_model.value.lower()}, another {group.message_model.value.lower()}")
    return found


def shared_client_ids(group: ConsumerConnection) -> dict[str, str]:
    """Client ids that more than one connection uses, with a sentence each."""
    addresses: defaultdict[str, list[str]] = defaultdict(list)
    for connection in group.connection_set:
        addresses[connection.client_id].append(connection.client_addr)
    return {
        client_id: f"{client_id} is used from {' and '.join(sorted(found))}"
        for client_id, found in sorted(addresses.items())
        if len(found) > 1
    }
