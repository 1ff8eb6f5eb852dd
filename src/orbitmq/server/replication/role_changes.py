"""What a server does beside when its broker takes on the role of a master or a slave, or lays it down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


async def _nothing() -> None:
    """Of a server that has nothing else to do."""


class RoleChanges:
    """Of one broker; whoever made it says what."""

    def __init__(self) -> None:
        self.became_master: Callable[[], Awaitable[None]] = _nothing
        """By a command, while it ran."""
        self.became_slave: Callable[[], Awaitable[None]] = _nothing
        """In the same way."""
        self.steps_down: Callable[[], None] = lambda: None
        """Puts into the log what a master alone knows, before it appends nothing any more. Raises OSError."""
        self.takes_over: Callable[[], object] = lambda: None
        """It is about to lead a log that another one has led until now, or may have, and has taken nothing yet."""
        self.goes_on: Callable[[], object] = lambda: None
        """It is about to lead a log of which it has everything that anybody may have read."""
        self.leaves: Callable[[], Awaitable[None]] = _nothing
        """Before the process stops in order, while it does everything as before."""
        self.begins_again: Callable[[], object] | None = None
        """Has the process end in order and begin again with its settings; None where that is not up to this process."""
