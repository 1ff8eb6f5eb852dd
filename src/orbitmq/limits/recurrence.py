"""Bounds of recurring messages: definitions, runs, and what is kept about them."""

from __future__ import annotations

from typing import Final

RECURRENCE_NAME_CHARS_MAX: Final = 255
"""The name of a recurring message; as long as the name of a group."""

RECURRENCE_ZONE_CHARS_MAX: Final = 64
"""The name of a time zone; the longest in the table has 32 characters."""

RECURRENCE_CRON_CHARS_MAX: Final = 256
"""A cron expression: every minute of the hour as a list has 169."""

RECURRENCE_INTERVAL_MS_MIN: Final = 1_000
"""Shortest interval, and the step of cron's seconds: what is to come more often is a stream and belongs in the program that sends."""

RECURRENCE_INTERVAL_MS_MAX: Final = 10 * 366 * 86_400_000
"""Longest interval: ten years. A longer one is a number in the wrong unit."""

RECURRENCE_JITTER_MS_MAX: Final = 86_400_000
"""Longest time by which a run may be put off at random: a day."""

RECURRENCE_COUNT_MAX: Final = 1_000_000_000
"""Largest number of runs after which a recurring message ends: one a second for thirty years."""

RECURRENCE_CATCH_UP_MAX: Final = 1_000
"""Most runs that are made up for at a time after the broker was down: a day of minutes would flood the consumers."""

RECURRENCE_GRACE_MS: Final = 60_000
"""How late a run may begin that is not to be made up for: an orderly restart of the broker is not down time."""

RECURRENCE_AHEAD_MS_MAX: Final = 3_600_000
"""How far ahead of the clock a message may be settled: the hour of summer time is waited for, so that no run comes twice; more is the
mistake of a clock, which is shown and can be put right."""

RECURRENCE_PREVIEW_MAX: Final = 1_000
"""Runs that are shown at a time."""

RECURRENCE_BODY_BYTES_MAX: Final = 262_144
"""Largest body of a recurring message: it stays in memory, and its definition is written anew, four thirds as long, when the
log file it is in comes to its end."""

RECURRENCE_INSTANT_MS_MAX: Final = 250_246_627_200_000
"""There are no runs after this instant, 9900-01-01: calendars of the standard library end a hundred years later."""

RECURRENCE_DEFINITIONS_MAX: Final = 10_000
"""Recurring messages that one broker keeps: a start takes 250 us for each, its records included."""

RECURRENCE_BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bodies of all recurring messages of a broker together: they stay in memory."""

RECURRENCE_RECORDS_PER_DEFINITION_MAX: Final = 4
"""Records that a start reads for each recurring message, on average: beyond it the oldest definition is written anew."""

RECURRENCE_RECORDS_KEPT_MIN: Final = 1_024
"""Records about recurring messages below whose number nothing is written anew, however few messages there are."""

RECURRENCE_NAMES_PER_TURN_MAX: Final = 64
"""Recurring messages whose runs are stored in one loop turn: about 10 ms of work at 170 us each."""

RECURRENCE_RUNS_PER_TURN_MAX: Final = 64
"""Runs of one recurring message that are made up for in one loop turn."""

RECURRENCE_PAGE_MAX: Final = 1_000
"""Recurring messages in one answer, without their bodies: a megabyte at most where names and expressions are long."""
