"""Looking into groups and queues more closely, and copying a group's place.

Rules of this file
1. Nothing here is needed for everyday work; each call is one question that a broker answers by itself.
"""

from __future__ import annotations

from orbitmq.client._async.administration.admin_calls import AdminCalls
from orbitmq.errors import ConfigurationError, NotFoundError
from orbitmq.protocol.names import group_name_problem
from orbitmq.protocol.remoting.bodies import (
    ConsumeQueueBody,
    ConsumeTimeSpans,
    MessageQueue,
    QuerySubscriptionBody,
    QueueTimeSpan,
    SubscriptionData,
    TopicList,
)
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode


class GroupViews(AdminCalls):
    """Calls that look closer."""

    async def topics_of_group(self, group: str) -> list[str]:
        """Topics of which any broker has an offset of the group, its retry topic included."""
        found: set[str] = set()
        for target in await self.masters():
            answer = await self._ask(
                target.address,
                RequestCode.QUERY_TOPICS_BY_CONSUMER,
                {"group": group},
                doing=f"listing the topics of group {group!r}",
            )
            found.update(TopicList.decode(answer.body).topic_list)
        return sorted(found)

    async def group_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the members of a group want of a topic, as the first broker says that knows; None when none does.

        RocketMQ's broker goes on telling it for a while after the last member has left.
        """
        for target in await self.masters():
            answer = await self._ask(
                target.address,
                RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
                {"group": group, "topic": topic},
                doing=f"reading the subscription of group {group!r} to topic {topic!r}",
                accept=(ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE),
            )
            if answer.code == ResponseCode.SUCCESS:
                subscription = QuerySubscriptionBody.decode(answer.body).subscription_data
                if subscription is not None:
                    return subscription
        return None

    async def group_time_spans(self, group: str, topic: str) -> dict[MessageQueue, QueueTimeSpan]:
        """Store times (ms since the epoch) of the first, last and last consumed message of each queue, and how far the group is behind."""
        route = await self._route(topic)
        found: dict[MessageQueue, QueueTimeSpan] = {}
        for broker_name in route.brokers:
            address = route.reader(broker_name)
            if address is None:
                raise NotFoundError(f"broker {broker_name!r} of topic {topic!r} is not online")
            answer = await self._ask(
                address,
                RequestCode.QUERY_CONSUME_TIME_SPAN,
                {"topic": topic, "group": group},
                doing=f"reading how far behind group {group!r} is on topic {topic!r}",
            )
            for span in ConsumeTimeSpans.decode(answer.body).consume_time_span_set:
                found[span.message_queue] = span
        return dict(sorted(found.items()))

    async def copy_group_offsets(self, source: str, target: str, topic: str) -> None:
        """Let group `target` stand where group `source` stands on a topic, queue by queue; queues without an offset are left alone.

        Members of `target` that are online overwrite it: stop them first.
        """
        problem = group_name_problem(target)
        if problem is not None:
            raise ConfigurationError(problem)
        route = await self._route(topic)
        for broker_name in route.brokers:
            address = route.master(broker_name)
            if address is None:
                raise NotFoundError(f"broker {broker_name!r} of topic {topic!r} has no master online")
            await self._ask(
                address,
                RequestCode.CLONE_GROUP_OFFSET,
                {"srcGroup": source, "destGroup": target, "topic": topic, "offline": "true"},
                doing=f"copying the offsets of group {source!r} to {target!r}",
            )

    async def queue_units(
        self, queue: MessageQueue, index: int, *, count: int = 32, group: str | None = None
    ) -> ConsumeQueueBody:
        """Raw entries of a queue's index from `index` on: where each message lies, its size and the code of its tag.

        group: also say of each entry (`eval`) whether the subscription of this group's online members takes it; RocketMQ's broker does so
            for entries with an extension only.
        """
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id), "index": str(index), "count": str(count)}
        if group is not None:
            fields["consumerGroup"] = group
        answer = await self._ask(
            await self._reader(queue),
            RequestCode.QUERY_CONSUME_QUEUE,
            fields,
            doing=f"reading the index of {queue.topic} {queue.broker_name}/{queue.queue_id}",
        )
        return ConsumeQueueBody.decode(answer.body)
