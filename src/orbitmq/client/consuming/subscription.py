"""What a consumer wants of a topic.

A tag expression is `*` for everything, or tags joined by `||`. The broker filters by the tags' hash codes; the client
filters once more by the tags themselves, because different tags may share a hash code.
"""

from __future__ import annotations

import msgspec

from orbitmq.errors import ConfigurationError, ProtocolError
from orbitmq.protocol.filtering.tags import TagFilter
from orbitmq.protocol.names import topic_name_problem
from orbitmq.protocol.remoting.bodies import SubscriptionData


class Subscription(msgspec.Struct, frozen=True):
    """A topic and the tags wanted of it. `version` is its creation time in ms; brokers keep the newest."""

    topic: str
    filter: TagFilter
    version: int

    def body(self) -> SubscriptionData:
        """The form that heartbeats carry."""
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.filter.expression,
            tags_set=sorted(self.filter.tags),
            code_set=sorted(self.filter.codes),
            sub_version=self.version,
        )


def subscribe(topic: str, expression: str, version: int) -> Subscription:
    """Raises `ConfigurationError` for an illegal topic name or an expression without any tag in it."""
    problem = topic_name_problem(topic)
    if problem is not None:
        raise ConfigurationError(f"cannot subscribe: {problem}")
    if not isinstance(expression, str):
        raise ConfigurationError(
            f"tags={expression!r} is no text", remedy='join tags with "||", or use "*" for all messages'
        )
    try:
        tag_filter = TagFilter.parse(expression.strip())
    except ProtocolError as error:
        raise ConfigurationError(str(error)) from error
    if not tag_filter.accepts_all and not tag_filter.tags:
        raise ConfigurationError(
            f"tag expression {expression!r} names no tag", remedy='join tags with "||", or use "*" for all messages'
        )
    return Subscription(topic, tag_filter, version)
