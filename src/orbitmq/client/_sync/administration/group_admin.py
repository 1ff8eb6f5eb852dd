"""Administration of consumer groups: settings, members, progress, and moving their offsets.

Rules of this file
1. Moving offsets is planned first (`plan_reset`), so that what would happen can be shown; `reset_offsets` does exactly that.
2. Who is online is told by the broker; an offline group's offsets are simply written.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/administration/group_admin.py: change that file and run `make generate`.
"""

from __future__ import annotations

from orbitmq.client._async.administration import group_admin as source
from orbitmq.client._async.administration.admin_calls import Broker
from orbitmq.client._sync.administration.broker_admin import BrokerAdmin
from orbitmq.client._sync.administration.look_up import LookUp
from orbitmq.client._sync.administration.topic_admin import TopicAdmin
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.offset_reset import OffsetMove, ResetTo
from orbitmq.protocol.remoting.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    MessageQueue,
    OffsetProgress,
    ProducerConnection,
    SubscriptionGroupConfig,
)


class GroupAdmin(BrokerAdmin, TopicAdmin, LookUp):
    """Calls about consumer groups."""

    def __init__(self, twin: source.GroupAdmin, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.GroupAdmin = twin

    def groups(self, cluster: str | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Settings of all consumer groups by name; where brokers differ, those of the first broker."""
        return self._loop.run(self._twin.groups(cluster))

    def group_configs(self, address: str) -> dict[str, SubscriptionGroupConfig]:
        """Settings of all consumer groups of one broker."""
        return self._loop.run(self._twin.group_configs(address))

    def create_group(
        self,
        group: str,
        *,
        settings: SubscriptionGroupConfig | None = None,
        retry_max_times: int = 16,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> list[Broker]:
        """Create a consumer group or change its settings. `settings` gives all of them and wins over `retry_max_times`."""
        return self._loop.run(
            self._twin.create_group(
                group, settings=settings, retry_max_times=retry_max_times, cluster=cluster, broker=broker
            )
        )

    def delete_group(self, group: str, *, clean_offsets: bool = True, cluster: str | None = None) -> None:
        """Delete a consumer group with its retry and dead-letter topics. An unknown group is no error."""
        self._loop.run(self._twin.delete_group(group, clean_offsets=clean_offsets, cluster=cluster))

    def group_progress(
        self, group: str, topic: str | None = None, *, broker: str | None = None
    ) -> dict[MessageQueue, OffsetProgress]:
        """How far a group has come on each queue (of one broker); `broker_offset - consumer_offset` is its lag.

        Without a topic: those of which a broker has an offset of the group, and its retry topic in any case. What waits there before
        a member has read it would be missing otherwise.
        """
        return self._loop.run(self._twin.group_progress(group, topic, broker=broker))

    def group_connections(self, group: str) -> ConsumerConnection | None:
        """Connected members of a consumer group and their subscriptions; None when nobody is online.

        Brokers of orbitmq tell in `orbitmq_warnings` what the members differ about.
        """
        return self._loop.run(self._twin.group_connections(group))

    def groups_of_topic(self, topic: str) -> list[str]:
        """Groups that consume a topic or have offsets of it."""
        return self._loop.run(self._twin.groups_of_topic(topic))

    def members(self, group: str) -> dict[str, ConsumerRunningInfo | None]:
        """What each connected member says about itself, by client id; None for one that does not answer the question."""
        return self._loop.run(self._twin.members(group))

    def producer_connections(self, group: str, topic: str) -> ProducerConnection:
        """Connected members of a producer group at the brokers of a topic."""
        return self._loop.run(self._twin.producer_connections(group, topic))

    def group_offsets(self, address: str) -> dict[tuple[str, str], dict[int, int]]:
        """All that groups have committed at one broker: by group and topic, by number of the queue."""
        return self._loop.run(self._twin.group_offsets(address))

    def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The offset that a group has committed of a queue, or None."""
        return self._loop.run(self._twin.group_offset(group, queue))

    def commit_group_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Write a group's offset of a queue. Members that are online will overwrite it; see `reset_offsets`."""
        self._loop.run(self._twin.commit_group_offset(group, queue, offset))

    def plan_reset(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        at_ms: int | None = None,
        offset: int | None = None,
        broker: str | None = None,
        queue_id: int | None = None,
    ) -> list[OffsetMove]:
        """What `reset_offsets` with the same arguments would do; nothing is changed.

        at_ms: with ResetTo.TIME, the first message stored at or after this instant. offset: with ResetTo.OFFSET, must lie within
        each queue chosen. broker, queue_id: only these queues.
        """
        return self._loop.run(
            self._twin.plan_reset(group, topic, to, at_ms=at_ms, offset=offset, broker=broker, queue_id=queue_id)
        )

    def reset_offsets(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        at_ms: int | None = None,
        offset: int | None = None,
        broker: str | None = None,
        queue_id: int | None = None,
    ) -> list[OffsetMove]:
        """Move a group's offsets of a topic, whether its members are online or not; what was done, queue by queue.

        Members that are online drop what they have pulled and go on from the new place. Nothing is undone when a later queue fails.
        """
        return self._loop.run(
            self._twin.reset_offsets(group, topic, to, at_ms=at_ms, offset=offset, broker=broker, queue_id=queue_id)
        )
