"""How far a consumer is: it is made, started once and closed for good. Of consumers with a handler and of polled ones.

Rules of this file
1. The words are what an error says of a consumer that is used at the wrong time.
"""

from enum import Enum


class ConsumerState(Enum):
    NEW = "not started"
    RUNNING = "running"
    CLOSED = "closed"
