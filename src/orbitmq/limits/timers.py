"""Bounds of timer messages: files, release, index, and requests about what is pending.

How many may wait has no bound here: they lie on the disk. `timerCongestNumEachSlot` says how many may be due in one slot.
"""

from __future__ import annotations

from typing import Final

# --- RocketMQ's timer files -------------------------------------------------------------------------------------------
TIMER_PRECISION_MS_MAX: Final = 1_775
"""Coarsest `timerPrecisionMs`: the span of the wheel, 1,209,600 slots, still fits the 32 bits in which RocketMQ reckons with it."""

TIMER_TAIL_BYTES_MAX: Final = 8 * 1024 * 1024
"""Units of the timer log that wait in memory while it is written, 160,000 of them."""

# --- release -------------------------------------------------------------------------------------------------------
RELEASE_BATCH_MAX: Final = 256
"""Messages released, or pending records put again, in one loop turn: about 3 ms of work, 8 ms where nothing is compiled."""

RELEASE_BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""What they may take together; the first one is taken whatever its size. One of the largest takes some 10 ms to copy, check and write, and
other sends have their turn before the next."""

TIMERS_SOON_MAX: Final = 4_000_000
"""Messages that are due soon and in memory, 32 MB. Beyond it none is taken before its time has come and others have left."""

TIMER_READ_AHEAD_RECORDS_MAX: Final = 2_048
"""Timer records read before their time that wait to be delivered: more than a second of them at the rate a disk gives."""

TIMER_READ_AHEAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""What these records may take: four of the largest, or 16,000 of 1 KiB."""

TIMER_DELIVER_MS_MAX: Final = 253_402_300_799_999
"""Latest due time of a timer message, the last millisecond of the year 9999: calendars and columnar files know no later date."""

TIMER_KNOWN_CANCELS_MAX: Final = 50_000
"""Cancel records of RocketMQ's clients that wait: 10 MB, and 3 MB of the recovery mark. Beyond it more are refused."""

TIMER_CANCEL_STRETCH_MS: Final = 2_000
"""Width in which such records are kept, more than any slot's: a message is due in the stretch of its slot time or in the next one."""

# --- index of pending timers ---------------------------------------------------------------------------------------
TIMER_COUNT_BUCKETS_MAX: Final = 100_000
"""Buckets of due times counted, over all topics: 10 MB. Beyond that those of the topic with the most become wider."""

TIMER_SCAN_MAX: Final = 20_000
"""Entries of the index that one page looks at, delivered and recalled ones included: 10 ms. The page is shorter then, and
its cursor goes on."""

# --- requests about timers -----------------------------------------------------------------------------------------
TIMER_CHANGES_PER_REQUEST_MAX: Final = 256
"""Timers that one request recalls, reschedules or asks about: about 10 ms of work; the answer says when there are more."""

TIMER_MATCHES_READ_MAX: Final = 1_024
"""Records read for one request to find out which timers it means, those that only look alike included."""

TIMER_COPIES_APART_MS_MAX: Final = 3_600_000
"""How far apart the due times of two copies of one message may be, of those that were never moved: a producer's retry with a delay
begins to wait seconds later than its first attempt. What is further away is not looked for where that would cost a look into the
far tier, or into old files of the key index."""
TIMER_PAST_READ_MAX: Final = 32
"""Records with one unique key or key that are looked at to tell what became of a message; the newest of them."""

TIMER_PAGE_MAX: Final = 1_000
"""Pending timers in one page of a list: each is read from the log, about 5 us when it is in memory."""

TIMER_TOPICS_ASKED_MAX: Final = 100
"""Topics that are asked one by one for their earliest timer while POP has records among the timers, some 20 us each. Where there are more
the answer may be the time of such a record, which is earlier."""

TIMER_BUCKETS_MAX: Final = 10_000
"""Buckets of one count of pending timers: a year in hours, for a strip that a person looks at."""

HANDED_OVER_MAX: Final = 1_000_000
"""Pending messages that an orderly stop writes into RocketMQ's timer files, in about a second. With more of them RocketMQ refuses the
store until `orbitmq store hand-over` has run."""

TIMER_QUESTION_WAITS_MS: Final = 2_000
"""How long a question waits for what is still being read again from the log; a client waits three seconds for an answer."""

TIMER_QUESTIONS_WAITING_MAX: Final = 1_000
"""Questions that wait so at a time; beyond it they are refused at once."""

TIMER_QUESTION_LOOK_MS: Final = 20
"""From one look whether it is known to the next."""
