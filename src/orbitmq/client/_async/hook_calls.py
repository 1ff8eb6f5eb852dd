"""Calling the hooks of a program so that nothing they do harms a send or a handler."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar

import msgspec

from orbitmq.client._async.runtime import Seldom, log, monotonic_ms
from orbitmq.client.hooks import ClientHooks, Fetched, Handled, SendEnded
from orbitmq.client.message import Message
from orbitmq.client.stored import StoredMessage
from orbitmq.clock import Clock
from orbitmq.errors import MessageIllegalError
from orbitmq.protocol.properties import user_property_problem
from orbitmq.protocol.remoting.bodies import MessageQueue

P = ParamSpec("P")
R = TypeVar("R")


class HookCalls:
    """The hooks of one client. Receipts are seen by what they have: an attempt number and a queue."""

    def __init__(self, hooks: ClientHooks, clock: Clock) -> None:
        self._hooks = hooks
        self._clock = clock
        self._failures = Seldom()

    # --- sending

    def completed(self, topic: str, message: Message) -> Message:
        """The message with the properties that the program adds. What no message may have is left out and logged: else a hook would fail
        the send. What is wrong without it is told by whoever checks the message."""
        if not isinstance(message, Message) or not isinstance(message.properties, Mapping):
            return message
        given = message.properties
        properties = dict(given)
        self._call(self._hooks.sending, topic, properties)
        if properties == given:
            return message
        for name, value in tuple(properties.items()):
            if (name not in given or value != given[name]) and not self._call(_checked, name, value):
                del properties[name]
                properties.update({name: given[name]} if name in given else {})
        return msgspec.structs.replace(message, properties=properties)

    async def watched(
        self,
        group: str,
        topic: str,
        messages: Sequence[Message],
        work: Awaitable[R],
        outcome: Callable[[R], tuple[int, str]],
    ) -> R:
        """The result of a send, of which the program is told. outcome: the number of its last attempt, and the broker."""
        began_ms = monotonic_ms()
        size = sum(
            len(message.body) for message in messages if isinstance(message.body, bytes | bytearray | memoryview)
        )
        try:
            result = await work
        except BaseException as error:
            took_ms = monotonic_ms() - began_ms
            self._call(self._hooks.sent, SendEnded(topic, group, len(messages), size, took_ms, None, None, error))
            raise
        took_ms = monotonic_ms() - began_ms
        self._call(self._hooks.sent, SendEnded(topic, group, len(messages), size, took_ms, *outcome(result), None))
        return result

    # --- consuming

    def fetched(
        self, queue: MessageQueue, group: str, messages_count: int, unsettled_count: int, behind_count: int
    ) -> None:
        self._call(self._hooks.fetched, Fetched(queue, group, messages_count, unsettled_count, behind_count))

    async def around(self, group: str, messages: Sequence[StoredMessage], work: Awaitable[None]) -> None:
        """Await a handler inside of what the program wants around it. Errors are the handler's, whatever the hook makes of them."""
        manager = self._call(self._entered, group, messages)
        try:
            await work
        finally:
            if manager is not None:
                self._call(manager.__exit__, *sys.exc_info())

    def handled(self, group: str, message: StoredMessage, took_ms: int, *, succeeded: bool) -> None:
        age_ms = self._clock.now_ms() - message.record.born_timestamp
        self._call(self._hooks.handled, Handled(message, group, took_ms, age_ms, succeeded))

    def _entered(self, group: str, messages: Sequence[StoredMessage]) -> AbstractContextManager[object]:
        manager = self._hooks.handling(group, messages)
        manager.__enter__()
        return manager

    def _call(self, hook: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return hook(*args, **kwargs)
        except Exception:
            unlogged = self._failures.due()
            if unlogged is not None:
                log.exception(
                    "a hook failed: %r%s", hook, f"; {unlogged} failures before it were not logged" if unlogged else ""
                )
            return None


def _checked(name: str, value: str) -> bool:
    """True, or `MessageIllegalError` for a property that a program may not set."""
    problem = (
        user_property_problem(name, value)
        if isinstance(name, str) and isinstance(value, str)
        else f"property {name!r} is {value!r}, and has to be text"
    )
    if problem is not None:
        raise MessageIllegalError(f"what `sending` added is left out: {problem}")
    return True
