"""What all roles of one server process share: settings, clock, files, the loop's turn, and room for connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from orbitmq.access.failures import FailedAttempts
from orbitmq.clock import Clock
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.server.connections.descriptors import ConnectionRoom
from orbitmq.server.connections.first_bytes import PortRules
from orbitmq.server.connections.outbound import Calling
from orbitmq.server.connections.request_queue import RequestQueue
from orbitmq.server.process.turn import Turn, Wakeups
from orbitmq.store.files import Files


class Surroundings(NamedTuple):
    settings: ServerSettings
    clock: Clock
    files: Files
    turn: Turn
    request_queue: RequestQueue
    wakeups: Wakeups
    room: ConnectionRoom
    rules: PortRules
    calling: Calling
    """How this process calls other servers."""

    attempts: FailedAttempts
    """Failed attempts to prove who calls, at any port."""

    notify: Callable[[Callable[[], None]], None]
    """Runs a call on the loop from another thread, as part of a turn."""
