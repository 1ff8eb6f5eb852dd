"""What programs at a pair were promised and what they got: timers, recalls, a recurring message, groups that read on.

Rules of this file
1. Numbers in, findings out; no clock, no network. All times are milliseconds of one clock.
2. A promise begins with an answer that both brokers stand behind. What was answered by one of them alone is not judged.
3. A message may come to a group again where the place up to which it had read was lost with a master: what it got in the last second
   before the fault, and whatever came after it.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

REPEATED_MS: Final = 1_000
"""Places up to which groups have read are recorded once in so long."""
LEEWAY_MS: Final = 1_500
"""For a loaded machine: what is recorded late, and what a program notes late."""
TICK_MS: Final = 1_000


class Recall(enum.Enum):
    """What the program that recalled a timer was told at last."""

    RECALLED = "it is not delivered"
    DELIVERED = "it is in its topic"
    UNKNOWN = "no broker knows it"


@dataclass(slots=True)
class Timer:
    due_ms: float
    is_copied: bool = False
    """Its send was answered 0."""
    recall: Recall | None = None
    received_ms: list[float] = field(default_factory=list)
    stored_count: int = 0
    """How often it stands in its topic, in the end."""


@dataclass
class Ledger:
    timers: dict[bytes, Timer] = field(default_factory=dict)
    ticks: Counter[int] = field(default_factory=Counter)
    """Stored messages of the recurring one by the time that they were planned for, in the end."""
    early_ticks: int = 0
    faults_ms: list[float] = field(default_factory=list)
    """When each fault began: from then on the copy, or the master, was not what it should be."""
    received: dict[str, dict[bytes, float]] = field(default_factory=lambda: defaultdict(dict))
    """By group: each message, and when it came last."""
    repeats_ms: list[float] = field(default_factory=list)
    """Of each message that came again: how long before the fault it had come."""
    far_repeats: list[tuple[str, bytes, float, int]] = field(default_factory=list)
    """Group, message, how long before the fault it had come, and the how many-eth fault that was."""

    def came(self, group: str, name: bytes, at_ms: float) -> None:
        """A program of this group got this message."""
        before_ms = self.received[group].get(name)
        self.received[group][name] = at_ms
        if before_ms is not None:
            ago_ms = max((fault_ms for fault_ms in self.faults_ms if fault_ms <= at_ms), default=0.0) - before_ms
            self.repeats_ms.append(max(ago_ms, 0.0))
            if ago_ms > REPEATED_MS + LEEWAY_MS or not self.faults_ms:
                self.far_repeats.append((group, name, ago_ms, sum(fault_ms <= at_ms for fault_ms in self.faults_ms)))
        if (timer := self.timers.get(name)) is not None:
            timer.received_ms.append(at_ms)

    def missing(self) -> list[bytes]:
        """Timers that must come and have not yet."""
        return [
            name
            for name, timer in self.timers.items()
            if timer.is_copied and timer.recall is not Recall.RECALLED and not timer.received_ms
        ]

    def findings(self) -> list[str]:
        timers = self.timers.items()
        planned = sorted(self.ticks)
        holes = [before + TICK_MS for before, after in pairwise(planned) if round((after - before) / TICK_MS) != 1]
        found: list[tuple[str, list[object]]] = [
            ("timers answered 0 never came", list(self.missing())),
            (
                "timers were recalled and came",
                [
                    name
                    for name, one in timers
                    if one.recall is Recall.RECALLED and (one.received_ms or one.stored_count)
                ],
            ),
            (
                "timers are in no topic although the answer to their recall said so",
                [
                    name
                    for name, one in timers
                    if one.recall is Recall.DELIVERED and one.is_copied and not one.stored_count
                ],
            ),
            (
                "timers answered 0 were unknown when they were recalled",
                [name for name, one in timers if one.recall is Recall.UNKNOWN and one.is_copied],
            ),
            ("timers came early", [name for name, one in timers if any(at < one.due_ms for at in one.received_ms)]),
            (
                "timers were delivered more than once into the log",
                [name for name, one in timers if one.stored_count > 1],
            ),
            ("ticks are missing", list(holes)),
            ("ticks are in the log more than once", [at for at, count in self.ticks.items() if count > 1]),
            ("messages came again that a group had long had", list(self.far_repeats)),
        ]
        if self.early_ticks:
            found.append(("ticks came early", [self.early_ticks]))
        return [f"{len(items)} {what}, such as {items[0]!r}" for what, items in found if items]

    def summary(self) -> str:
        recalls = Counter(timer.recall for timer in self.timers.values())
        return (
            f"{len(self.timers)} timers, {sum(bool(one.received_ms) for one in self.timers.values())} came, "
            f"{recalls[Recall.RECALLED]} recalled, {recalls[Recall.DELIVERED]} too late; {len(self.ticks)} ticks; "
            f"{sum(map(len, self.received.values()))} deliveries, {len(self.repeats_ms)} again, at most "
            f"{max(self.repeats_ms, default=0) / 1_000:.1f} s back"
        )
