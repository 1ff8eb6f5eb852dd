"""Bounds of POP consumption: what is in flight, who waits, how long a message is hidden."""

from __future__ import annotations

from typing import Final

POP_MESSAGES_MAX: Final = 32
"""Messages of one pop, as in RocketMQ; a request for more is answered INVALID_PARAMETER."""

POP_IN_FLIGHT_PER_QUEUE_MAX: Final = 200_000
"""Messages of one queue and group that are popped and not settled; beyond it a pop gets nothing of that queue. A group whose consumers
never acknowledge leaves room for others."""

POP_IN_FLIGHT_MAX: Final = 1_000_000
"""The same of all queues and groups: about 25 bytes each where neighbours are in flight."""

POP_CHUNKS_MAX: Final = 150_000
"""Pieces of 64 offsets with a message in flight, 1.6 KB each whether one of its messages is in flight or all: 240 MB. Beyond it a pop
gets nothing."""

POP_UNSTORED_MAX: Final = 50_000
"""Pops that have no checkpoint yet, 300 bytes each. Beyond it the oldest gets one at once, before `popCkStayBufferTime` is over."""

POP_STORED_PAUSE_MS: Final = 1_000
"""From one storing of checkpoints to the next: pops that come in between share a wake-up."""

POP_STORED_AT_ONCE_MAX: Final = 200
"""Checkpoints, and acknowledgements of what was forgotten, that are stored in one step: about 5 ms."""

POP_JOINED_OFFSETS_MAX: Final = 1_024
"""How far messages lie apart that are given back as one pop: whoever stores it looks at each 64 offsets between them."""

POP_RECORDS_AT_ONCE_MAX: Final = 1_000
"""Checkpoints and acknowledgements that a start looks up at a time among the timers."""

POP_INVISIBLE_MS_MAX: Final = 259_200_000
"""Longest invisible time: three days, as far as RocketMQ's timers take a checkpoint. More is answered INVALID_PARAMETER."""

POP_ORDERED_QUEUES_MAX: Final = 100_000
"""Queues and groups with messages that were popped in order and are not acknowledged, 2 KB each at most. Beyond it an ordered pop gets
nothing of further queues."""

POP_ATTEMPT_ID_CHARS_MAX: Final = 128
"""Characters of an attempt id, which is kept with its messages; RocketMQ's proxies send a UUID. A longer one is answered
INVALID_PARAMETER."""

POP_WAITING_PER_QUEUE_MAX: Final = 1_024
"""Pops of one group that wait for messages of one queue; RocketMQ's bound. Beyond it the answer is POLLING_FULL."""

POP_LOOKS_AT_ONCE_MAX: Final = 4_096
"""Groups of waiting pops that a turn looks at for messages that came, 1 us each; a pop that is woken counts as 64. The others have the next
turns."""

POP_WAKES_MAX: Final = 10_000
"""Messages that came and for which pops are to be woken yet, 1 KB each. Beyond it a turn goes on until there are fewer."""

POP_QUESTION_UNITS_MAX: Final = 64
"""Messages whose tags a NOTIFICATION looks at, of a queue without more that nobody popped; where there are more it says that there is a
message. RocketMQ's value (`maxMessageFilterNumForNotification`)."""

POP_READS_MAX: Final = 8
"""Reads of one queue in one pop that find only messages which the group does not want; then another queue has its turn."""

POP_ACK_BITS_BYTES_MAX: Final = 8_192
"""Bytes of one bit set of acknowledgements: 65,536 offsets from the start of a pop on."""

POP_ACKS_AT_ONCE_MAX: Final = 10_000
"""Messages, and pops, of one batch of acknowledgements: about 20 ms. Beyond it the answer is MESSAGE_ILLEGAL, and none is settled."""

POP_SHORTENED_MAX: Final = 10_000
"""Messages that are remembered, 0.4 KB each, because they come back before an earlier receipt says so. An acknowledgement by such a receipt
of one that is forgotten is answered as that of a settled message."""

POP_COPIES_READ_MAX: Final = 50_000
"""Messages in retry topics that a start looks at: about 1.5 s. What else was stored again is delivered twice."""

POP_COPIES_SPARE_MS: Final = 30_000
"""Saved offsets lag behind what is settled by the time that a pop is kept in memory, the pause between two saves, and at most this."""

POP_RETURNED_AT_ONCE_MAX: Final = 200
"""Messages whose time has come that are stored again in one step: about 5 ms."""

POP_RETRY_MS: Final = 5_000
"""When a message or a checkpoint could not be stored, it is tried again after this; that it could not be is logged no more often."""

POP_CLOCK_SLACK_MS: Final = 1_000
"""How far pop times, from which messages are hidden, may run ahead of a clock that was set back. Beyond it the clock counts: a message
that reappears hours late is worse than two pops with the same time."""

POP_SLEEP_MS_MAX: Final = 1_000
"""Longest sleep while messages are in flight, so that a step of the wall clock is noticed."""

POP_LATE_REQUEST_MS: Final = 500
"""A pop that arrives so long after its poll time is over is not served: its client has given up. RocketMQ's value."""
