"""Bounds of what is believed about the machine's wall clock."""

from __future__ import annotations

from typing import Final

CLOCK_JUMP_MS: Final = 10_000
"""A step of the wall clock that is larger is a jump, which has to last before it is believed. Time services correct at once what is
smaller, and a store time that lies this far ahead is a mistake."""

CLOCK_BELIEVED_AFTER_MS: Final = 60_000
"""How long a jump lasts before it is believed: a timed message is late by this much at most when the jump is right."""

CLOCK_LOOK_NS: Final = 1_000_000_000
"""A reading is compared with the other clock when the wall clock has gone on by this much since the last comparison: less than a
jump, so that none is missed."""

CLOCK_READINGS_MAX: Final = 3
"""Attempts to read both clocks at one moment: a process may be stopped in between."""

DEADLINE_RETRY_NS: Final = 1_000_000_000
"""Pause after an action has raised: what it leaves undone is not forgotten, and does not fill the log."""
