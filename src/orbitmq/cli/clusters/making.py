"""Making a topic or a group with given settings on one broker. One that exists gets these settings; attributes that are not named stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, TopicConfig


async def make(client: Client, config: TopicConfig | SubscriptionGroupConfig, broker: str) -> None:
    """Make what these are the settings of, on the master of this name or address."""
    from orbitmq.protocol.names import Perm
    from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig

    if isinstance(config, SubscriptionGroupConfig):
        # A request has changes of attributes: a plus sets one.
        signed = {f"+{name}": value for name, value in config.attributes.items()}
        settings = msgspec.structs.replace(config, attributes=signed)
        await client.admin.create_group(config.group_name, settings=settings, broker=broker)
        return
    await client.admin.create_topic(
        config.topic_name,
        queues_count=config.read_queue_nums,
        write_queues_count=config.write_queue_nums,
        perm=Perm(config.perm),
        ordered=config.order,
        attributes=config.attributes,
        broker=broker,
    )
