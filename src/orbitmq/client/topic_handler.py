"""A function that handles the messages of a topic, with all that a worker needs to run it.

Rules of this file
1. Nothing here connects or runs: what a program declares is checked when it is declared, and can be called in a test like any function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from orbitmq.client.arguments import check_instance, check_whole
from orbitmq.client.consuming.outcomes import RetryDelays, check_handler, check_retry_delays
from orbitmq.client.options import ConsumerOptions
from orbitmq.errors import ConfigurationError
from orbitmq.limits.client import CONSUMER_CONCURRENCY_MAX, WORKER_HANDLERS_MAX

DEFAULT_CONCURRENCY: Final = 20


class TopicHandler:
    """What `handler` makes of a function. Calling it calls the function."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        topic: str,
        group: str,
        tags: str,
        concurrency: int,
        options: ConsumerOptions,
    ) -> None:
        self.function = function
        self.topic = topic
        self.group = group
        self.tags = tags
        self.concurrency = concurrency
        self.options = options
        self.__doc__ = function.__doc__

    @property
    def is_asynchronous(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def __call__(self, message: Any) -> Any:
        return self.function(message)

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"<handler {name} of topic {self.topic} for group {self.group}>"


def handler(
    topic: str,
    *,
    group: str,
    tags: str = "*",
    concurrency: int = DEFAULT_CONCURRENCY,
    retry_delays: RetryDelays = (),
    options: ConsumerOptions | None = None,
) -> Callable[[Callable[[Any], Any]], TopicHandler]:
    """Say of a function, `async def` or plain, that it handles the messages of `topic` for consumer group `group`.

    Returning acknowledges a message, raising has it come again; `Retry` and `Reject` say it exactly. concurrency: calls at the same time.
    retry_delays: as in `ConsumerOptions`, of which `options` gives the rest. ConfigurationError for what no consumer could have.
    """
    check_whole("concurrency", concurrency, 1, CONSUMER_CONCURRENCY_MAX)
    check_instance("options", options, ConsumerOptions)
    chosen = options or ConsumerOptions()
    if retry_delays:
        check_retry_delays(retry_delays)
        chosen = msgspec.structs.replace(chosen, retry_delays=tuple(retry_delays))

    def of(function: Callable[[Any], Any]) -> TopicHandler:
        check_handler(function)
        return TopicHandler(function, topic, group, tags, concurrency, chosen)

    return of


def check_handlers(handlers: Sequence[object], *, asynchronous: bool) -> Sequence[TopicHandler]:
    """ConfigurationError where a worker could not run them all together."""
    if not 0 < len(handlers) <= WORKER_HANDLERS_MAX:
        raise ConfigurationError(f"a worker has 1 to {WORKER_HANDLERS_MAX} handlers, not {len(handlers)}")
    found: list[TopicHandler] = []
    for one in handlers:
        if not isinstance(one, TopicHandler):
            raise ConfigurationError(
                f"{one!r} is no handler", remedy='write @orbitmq.handler("topic", group="group") above the function'
            )
        if one.is_asynchronous is not asynchronous:
            raise ConfigurationError(
                f"{one!r} is {'a plain function' if asynchronous else 'asynchronous'}",
                remedy="orbitmq.serve runs functions with async def, orbitmq.sync.serve plain ones, on threads",
            )
        if any(other.group == one.group for other in found):
            raise ConfigurationError(
                f"two handlers of group {one.group}: all members of a group read the same topics",
                remedy="give each handler a group of its own",
            )
        found.append(one)
    return found
