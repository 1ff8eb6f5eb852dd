"""Removing topics with all that belongs to them, for requests that delete a topic or a group.

Source: RocketMQ broker, topics and subscription groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pull import PullProcessor
from orbitmq.broker.refusal import Refusal
from orbitmq.protocol.pop_receipts import RETRY_SOURCES, pop_retry_topic
from orbitmq.protocol.remoting.commands import ResponseCode


class TopicRemoval:
    def __init__(self, core: BrokerCore, pulls: PullProcessor, offsets_gone: Callable[[], None]) -> None:
        """`offsets_gone` ends what is in flight where an offset was deleted."""
        self._topics = core.topics
        self._offsets = core.offsets
        self._store = core.store
        self._statistics = core.statistics
        self._pulls = pulls
        self._offsets_gone = offsets_gone

    def remove(self, names: Sequence[str]) -> None:
        """Delete topics with their offsets, queues and figures, and answer the pulls that wait for them. Raises Refusal when that could
        not be saved."""
        for name in names:
            self._topics.delete(name)
            self._offsets.drop_topic(name)
        failure: OSError | None = None
        try:
            self._offsets.save()  # first: saved ones that outlive the queues would skip messages of the next topic of that name
        except OSError as error:
            failure = error
        for name in names:
            self._store.delete_topic(name)
            self._statistics.drop_topic(name)
            self._pulls.held.release_topic(name)
        self._offsets_gone()
        if failure is not None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"it is deleted, but that its offsets are too could not be saved: {failure}",
            ) from failure

    def pop_retry_topics(self, groups: Iterable[str], topics: Iterable[str]) -> list[str]:
        """Where these groups keep what they popped of these topics and did not acknowledge. Names that another group reads too are
        left out: `%RETRY%a_b_c` may be that of `a` for `b_c`, of `a_b` for `c`, and what `a_b_c` pulls."""
        topics = list(topics)
        found = {
            name
            for group in groups
            for topic in topics
            for source in RETRY_SOURCES
            if self._topics.get(name := pop_retry_topic(group, topic, source)) is not None
            and set(self._offsets.groups_of(name)) <= {group}
        }
        return sorted(found)
