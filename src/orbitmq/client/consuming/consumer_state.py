"""How far a consumer is: it is made, started once and closed for good. Of consumers with a handler and of polled ones.

Rules of this file
1. The words are what an error says of a consumer that is used at the wrong time.
"""

from enum import Enum

from orbitmq.errors import ClientError


class ConsumerState(Enum):
    NEW = "not started"
    RUNNING = "running"
    CLOSED = "closed"

    def check_started(self, group: str) -> None:
        """`ClientError` for a consumer to which nothing will ever come."""
        if self is ConsumerState.NEW:
            raise ClientError(f"consumer {group!r} is {self.value}", remedy="run it inside its with block")
