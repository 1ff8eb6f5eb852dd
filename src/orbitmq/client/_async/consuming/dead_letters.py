"""Readers of a group's dead letters.

The first letter makes their topic, and whoever waits for a topic hears of it when the routes are asked for next. So a reader makes it
beforehand, where it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.client._async.runtime import log
from orbitmq.errors import ClientError
from orbitmq.protocol.names import DLQ_PREFIX

if TYPE_CHECKING:
    from orbitmq.client._async.parts import ClientContext

READER_SUFFIX: Final = "-dead-letters"
"""Ends the name of the group that reads what another one has given up."""

LETTER_QUEUES: Final = 1
"""Queues of a dead-letter topic at each broker, as brokers make it."""


async def find(client: ClientContext, topic: str) -> None:
    """Ask for the route of a topic that is to be consumed; make the topic where it is one of dead letters and not there yet."""
    if await client.routes.find(topic) is not None or not topic.startswith(DLQ_PREFIX):
        return
    from orbitmq.client._async.administration.topic_admin import TopicAdmin

    try:
        await TopicAdmin(client).create_topic(topic, queues_count=LETTER_QUEUES)
        await client.routes.find(topic)
    except ClientError as error:
        log.info("%s is made by the first letter: %s", topic, error)
