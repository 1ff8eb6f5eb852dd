"""Bounds of transactions: undecided ones, their copies, checks, and what is kept about them."""

from __future__ import annotations

from typing import Final

UNDECIDED_MAX: Final = 100_000
"""Undecided transactions of one broker, about 1 KB of memory each; beyond it half messages are answered SYSTEM_BUSY. At the first check
six seconds later that is 16,000 a second that nobody decides."""

COPIES_REMEMBERED_MAX: Final = 64
"""Copies of one half message by whose offsets its transaction is found; there are 16 with RocketMQ's number of checks. A producer that
answers an older one is told that nothing undecided is there, and is asked again."""

SAME_ID_MAX: Final = 16
"""Undecided transactions of one topic and one id that a decision by id finds and decides together: a client that sends a half message again
makes a second one, and clients send three times. Of more, the oldest are not found by their id until they are checked."""

CHECKS_IN_TURN_MAX: Final = 64
"""Half messages read, copied and asked about in one loop turn: about 3 ms."""

STALE_TIMES_MAX: Final = 10_000
"""Times of checks of transactions that are decided, beyond as many as are undecided, after which they are thrown away: a message may ask to
be checked after days."""

OP_OFFSETS_MAX: Final = 200
"""Offsets in one op record: with 19 digits each they fit the 4,096 bytes that RocketMQ writes at most."""

MARKED_UNDECIDED_MAX: Final = 4_000
"""Undecided transactions that the recovery mark lists, 50 KB. With more of them a start reads the queues of half messages and of op
records from the oldest undecided one on, as RocketMQ does."""

OP_STRETCHES_MAX: Final = 1_000
"""Stretches of the op queue whose highest half offset is known while an old transaction waits; beyond it neighbours are joined, and
RocketMQ would begin to read a little earlier."""

OP_RECORDS_READ_MAX: Final = 32
"""Records looked at to tell how a transaction ended: those that name it are one for each copy at most, the others share a hash."""

TRANSACTION_PAGE_MAX: Final = 1_000
"""Undecided transactions on one page of a list, 300 bytes each; more is INVALID_PARAMETER."""
