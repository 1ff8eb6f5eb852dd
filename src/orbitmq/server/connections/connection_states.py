"""The states of an accepted connection, and what leads from one to the next.

A connection has two states that do not depend on each other: how far it has come to its end, and whether it takes its answers.

Rules of this file
1. A pair of state and event without a row leaves the state as it is: events may come late, twice, or for a connection that is gone.
2. No state is left for an earlier one, except that a connection takes its answers again.
3. Only tables are here. What a connection does in a state stands in `accepted_connection`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class ConnectionState(Enum):
    OPEN = auto()
    """Bytes are read, requests are handled, answers are written."""
    LAST_REQUESTS = auto()
    """Nothing more can be read; requests that arrived are still handled and answered."""
    ENDING = auto()
    """Nothing more is handled; what was answered is still written."""
    CLOSING = auto()
    """Nothing more is written; the socket is being closed."""
    ORPHANED = auto()
    """The socket is gone; requests that arrived before still count and are handled without an answer."""
    CLOSED = auto()
    """The socket is gone, and no request of the connection waits."""


class ConnectionEvent(Enum):
    INPUT_ENDED = auto()
    """The peer sends nothing more, or what it sent can not be read any further."""
    REQUESTS_DONE = auto()
    """No request of the connection waits any longer."""
    END = auto()
    """We close the connection after the answers that this turn brings."""
    WRITTEN = auto()
    """The answers were handed to the socket at the end of a turn."""
    CUT = auto()
    """We close the connection at once."""
    LOST = auto()
    """The socket is gone."""


class OutputState(Enum):
    FREE = auto()
    """Answers leave as they come."""
    FULL = auto()
    """As much has been collected as one turn may, or an answer is held back: nothing more is handled before it has left."""
    STUCK = auto()
    """The socket takes nothing more: the peer does not read its answers."""


class OutputEvent(Enum):
    FILLED = auto()
    """The collected answers have reached their bound."""
    PAUSED = auto()
    """The socket has more to write than its high-water mark."""
    RESUMED = auto()
    """The socket has written down to its low-water mark."""
    EMPTIED = auto()
    """Little or nothing is collected any longer."""


_State, _Event = ConnectionState, ConnectionEvent

CONNECTION_TABLE: Final = {
    (_State.OPEN, _Event.INPUT_ENDED): _State.LAST_REQUESTS,
    (_State.OPEN, _Event.END): _State.ENDING,
    (_State.OPEN, _Event.CUT): _State.CLOSING,
    (_State.OPEN, _Event.LOST): _State.ORPHANED,
    (_State.LAST_REQUESTS, _Event.REQUESTS_DONE): _State.ENDING,
    (_State.LAST_REQUESTS, _Event.END): _State.ENDING,
    (_State.LAST_REQUESTS, _Event.CUT): _State.CLOSING,
    (_State.LAST_REQUESTS, _Event.LOST): _State.ORPHANED,
    (_State.ENDING, _Event.WRITTEN): _State.CLOSING,
    (_State.ENDING, _Event.CUT): _State.CLOSING,
    (_State.ENDING, _Event.LOST): _State.CLOSED,
    (_State.CLOSING, _Event.LOST): _State.CLOSED,
    (_State.ORPHANED, _Event.REQUESTS_DONE): _State.CLOSED,
}

OUTPUT_TABLE: Final = {
    (OutputState.FREE, OutputEvent.FILLED): OutputState.FULL,
    (OutputState.FREE, OutputEvent.PAUSED): OutputState.STUCK,
    (OutputState.FULL, OutputEvent.PAUSED): OutputState.STUCK,
    (OutputState.FULL, OutputEvent.EMPTIED): OutputState.FREE,
    (OutputState.STUCK, OutputEvent.RESUMED): OutputState.FULL,
}

HANDLED: Final = (ConnectionState.OPEN, ConnectionState.LAST_REQUESTS)
"""Requests are handled, and their answers leave."""

SILENT: Final = (ConnectionState.CLOSING, ConnectionState.ORPHANED, ConnectionState.CLOSED)
"""What is answered is dropped."""

GONE: Final = (ConnectionState.ORPHANED, ConnectionState.CLOSED)
"""There is no socket any more."""
