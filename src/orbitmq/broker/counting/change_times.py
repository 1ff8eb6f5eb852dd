"""How long creating or changing topics and groups by request takes.

Source: RocketMQ 5, execution time metrics of topics and consumer groups.

Rules of this file
1. What is measured is the decision, not the saving of the table, which all changes of a loop turn share.
2. A refusal counts as a failure; whatever was raised goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.clock import Clock
from orbitmq.histogram import Histogram
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer

BOUNDS_MS: Final = (10, 100, 1_000, 3_000, 5_000)
"""RocketMQ's buckets."""

SUCCESS, FAILURE = "success", "failure"

Handler = Callable[[Command, Peer], Command | None]
Times = dict[tuple[str, str], Histogram]
"""(outcome, whether it was about a system topic or group: `true` or `false`) -> milliseconds."""


class ChangeTimes:
    """The measurements of one broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.topics: Times = {}
        self.groups: Times = {}

    def of_topics(self, handler: Handler, is_system: Callable[[str], bool]) -> Handler:
        """The same handler, measured; the request names its topic in the field `topic`."""
        return self._measured(handler, self.topics, lambda command: is_system(command.text("topic")))

    def of_groups(self, handler: Handler) -> Handler:
        """The same handler, measured. Groups travel in bodies; nobody changes system groups by request."""
        return self._measured(handler, self.groups, lambda command: False)

    def _measured(self, handler: Handler, times: Times, is_system: Callable[[Command], bool]) -> Handler:
        def measured(command: Command, peer: Peer) -> Command | None:
            begun_ns = self._clock.monotonic_ns()
            outcome = FAILURE
            try:
                answer = handler(command, peer)
                if answer is None or not answer.code:
                    outcome = SUCCESS
                return answer
            finally:
                key = (outcome, "true" if is_system(command) else "false")
                histogram = times.get(key)
                if histogram is None:
                    histogram = times[key] = Histogram(BOUNDS_MS)
                histogram.observe((self._clock.monotonic_ns() - begun_ns) // 1_000_000)

        return measured
