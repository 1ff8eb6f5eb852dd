"""What a consumer wants of a topic.

A tag expression is `*` for everything, or tags joined by `||`. The broker filters by the tags' hash codes; the client
filters once more by the tags themselves, because different tags may share a hash code. An SQL92 expression over properties is the
broker's alone; here it is only compiled, so that a mistake is known before anything is sent.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from orbitmq.errors import ConfigurationError, ProtocolError
from orbitmq.limits.client import CHECKED_EXPRESSIONS_MAX
from orbitmq.protocol.filtering.expression import SQL92, TAG, PropertyFilter
from orbitmq.protocol.filtering.tags import TagFilter
from orbitmq.protocol.names import topic_name_problem
from orbitmq.protocol.remoting.bodies import SubscriptionData

EVERYTHING: Final = TagFilter.parse("*")


class Sql(msgspec.Struct, frozen=True):
    """An SQL92 expression over properties, where a text would mean tags: `{"orders": "paid", "refunds": Sql("price > 10")}`."""

    expression: str


class Subscription(msgspec.Struct, frozen=True):
    """A topic and what is wanted of it: `sql` where it is set, else the tags of `filter`. `version` is its creation time in ms; brokers
    keep the newest."""

    topic: str
    filter: TagFilter
    version: int
    sql: str | None = None

    @property
    def expression(self) -> str:
        """The text of whichever it is."""
        return self.filter.expression if self.sql is None else self.sql

    @property
    def expression_type(self) -> str:
        """How brokers have to read `expression`."""
        return TAG if self.sql is None else SQL92

    def body(self) -> SubscriptionData:
        """The form that heartbeats carry."""
        return SubscriptionData(
            topic=self.topic,
            sub_string=self.expression,
            tags_set=sorted(self.filter.tags),
            code_set=sorted(self.filter.codes),
            sub_version=self.version,
            expression_type=self.expression_type,
        )


def subscribe(topic: str, tags: str, version: int, *, sql: str | None = None) -> Subscription:
    """Raises `ConfigurationError` for an illegal topic name, tags without any tag in them, an SQL92 expression that does not compile, and
    for both at once."""
    problem = topic_name_problem(topic)
    if problem is not None:
        raise ConfigurationError(f"cannot subscribe: {problem}")
    if not isinstance(tags, str):
        raise ConfigurationError(f"tags={tags!r} is no text", remedy='join tags with "||", or use "*" for all messages')
    try:
        tag_filter = TagFilter.parse(tags.strip())
    except ProtocolError as error:
        raise ConfigurationError(str(error)) from error
    if not tag_filter.accepts_all and not tag_filter.tags:
        raise ConfigurationError(
            f"tag expression {tags!r} names no tag", remedy='join tags with "||", or use "*" for all messages'
        )
    if sql is None:
        return Subscription(topic, tag_filter, version)
    if not tag_filter.accepts_all:
        raise ConfigurationError(
            f"tags={tags!r} beside sql={sql!r}", remedy="write the tags into the expression: TAGS IN ('a', 'b')"
        )
    problem = _sql_problem(sql) if isinstance(sql, str) else "it is no text"
    if problem is not None:
        raise ConfigurationError(f"sql={sql!r} is no filter expression: {problem}")
    return Subscription(topic, EVERYTHING, version, sql)


@lru_cache(CHECKED_EXPRESSIONS_MAX)
def _sql_problem(expression: str) -> str | None:
    """Why an expression does not compile; None for one that does."""
    try:
        PropertyFilter(expression)
    except ProtocolError as error:
        return str(error)
    return None
