"""Looking into groups and queues more closely, and copying a group's place.

Rules of this file
1. Nothing here is needed for everyday work; each call is one question that a broker answers by itself.

Written by scripts/generate_sync.py from src/orbitmq/client/_async/administration/group_views.py: change that file and run `make generate`.
"""

from __future__ import annotations

from orbitmq.client._async.administration import group_views as source
from orbitmq.client._sync.administration.admin_calls import AdminCalls
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.protocol.remoting.bodies import ConsumeQueueBody, MessageQueue, QueueTimeSpan, SubscriptionData


class GroupViews(AdminCalls):
    """Calls that look closer."""

    def __init__(self, twin: source.GroupViews, loop_thread: LoopThread) -> None:
        self._loop = loop_thread
        self._twin: source.GroupViews = twin

    def topics_of_group(self, group: str) -> list[str]:
        """Topics of which any broker has an offset of the group, its retry topic included."""
        return self._loop.run(self._twin.topics_of_group(group))

    def group_subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the members of a group want of a topic, as the first broker says that knows; None when none does.

        RocketMQ's broker goes on telling it for a while after the last member has left.
        """
        return self._loop.run(self._twin.group_subscription(group, topic))

    def group_time_spans(self, group: str, topic: str) -> dict[MessageQueue, QueueTimeSpan]:
        """Store times (ms since the epoch) of the first, last and last consumed message of each queue, and how far the group is behind."""
        return self._loop.run(self._twin.group_time_spans(group, topic))

    def copy_group_offsets(self, source: str, target: str, topic: str) -> None:
        """Let group `target` stand where group `source` stands on a topic, queue by queue; queues without an offset are left alone.

        Members of `target` that are online overwrite it: stop them first.
        """
        self._loop.run(self._twin.copy_group_offsets(source, target, topic))

    def queue_units(
        self, queue: MessageQueue, index: int, *, count: int = 32, group: str | None = None
    ) -> ConsumeQueueBody:
        """Raw entries of a queue's index from `index` on: where each message lies, its size and the code of its tag.

        group: also say of each entry (`eval`) whether the subscription of this group's online members takes it; RocketMQ's broker does so
            for entries with an extension only.
        """
        return self._loop.run(self._twin.queue_units(queue, index, count=count, group=group))
