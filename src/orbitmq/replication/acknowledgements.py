"""What copies mean for a send: how many must have it, what its sender hears, and how far the log may be confirmed.

    outcome                        RocketMQ's answer   the message
    COPIED                         0                   is on as many copies as the rule says
    SLAVE_NOT_AVAILABLE            11                  is here; too few copies count
    FLUSH_SLAVE_TIMEOUT            12                  is here; no copy had it in time
    IN_SYNC_REPLICAS_NOT_ENOUGH    1                   was not written
    REFUSED                        14                  was not written (`refuseWithoutCopies`)

Rules of this file
1. Copies are those of slaves; the master's own is not counted here. Only copies that count are passed in: `copies` says which.
2. What falls below the rule is told at once: nobody waits for a copy that does not count.
3. Too few copies hold nothing back: the message is confirmed and delivered as if the master were alone, as RocketMQ does it. With
   `refuses` they hold everything back, and what is already written waits for a copy.
4. Everything here is a function of its arguments.

RocketMQ 4 waits for any one slave. RocketMQ 5 waits for `inSyncReplicas` copies, the master's among them. Both are one rule with
different numbers. (RocketMQ broker, replication 3.1 to 3.3.)
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import msgspec

from orbitmq.limits.replication import COPY_BEHIND_BYTES_MAX


class CopyOutcome(enum.Enum):
    """What a send hears of its copies."""

    COPIED = "copied"
    SLAVE_NOT_AVAILABLE = "slave not available"
    FLUSH_SLAVE_TIMEOUT = "flush slave timeout"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "in-sync replicas not enough"
    REFUSED = "refused"


class CopyRule(msgspec.Struct, frozen=True, kw_only=True):
    """How many copies beside the master's own a message has to be on. ValueError where the numbers do not go together."""

    needed: int = 0
    """0: nobody waits for a copy."""
    needed_min: int = 0
    """With fewer copies nothing is written."""
    lowers: bool = False
    """With fewer copies than `needed`, those there are suffice, down to `needed_min`."""
    waits_for_all: bool = False
    """Every copy that counts has to have it, however many more than `needed` there are."""
    behind_bytes_max: int = COPY_BEHIND_BYTES_MAX
    """A copy so far behind the end of the log does not count."""
    refuses: bool = False
    """With too few copies nothing is written, instead of written and answered with a warning."""

    def __post_init__(self) -> None:
        if not 0 <= self.needed_min <= self.needed:
            raise ValueError(f"{self.needed_min} copies at least and {self.needed} copies do not go together")

    def needed_with(self, count: int) -> int:
        """Copies that a message needs while `count` of them count."""
        return max(min(self.needed, count), self.needed_min) if self.lowers else self.needed


def one_slave_rule(*, behind_bytes_max: int = COPY_BEHIND_BYTES_MAX, refuses: bool = False) -> CopyRule:
    """RocketMQ 4's synchronous master: any one slave."""
    return CopyRule(needed=1, behind_bytes_max=behind_bytes_max, refuses=refuses)


def quorum_rule(
    *,
    total_replicas: int,
    in_sync_replicas: int,
    min_in_sync_replicas: int = 1,
    lowers: bool = False,
    waits_for_all: bool = False,
    max_gap_bytes: int = COPY_BEHIND_BYTES_MAX,
    refuses: bool = False,
) -> CopyRule:
    """RocketMQ 5's synchronous master. Its numbers count the master's own copy. ValueError where they do not go together."""
    if not 1 <= min_in_sync_replicas <= in_sync_replicas <= total_replicas:
        raise ValueError(
            f"minInSyncReplicas {min_in_sync_replicas}, inSyncReplicas {in_sync_replicas} and totalReplicas {total_replicas}"
            " have to be in this order, from 1"
        )
    return CopyRule(
        needed=in_sync_replicas - 1,
        needed_min=min_in_sync_replicas - 1,
        lowers=lowers,
        waits_for_all=waits_for_all,
        behind_bytes_max=max_gap_bytes,
        refuses=refuses,
    )


def refusal(rule: CopyRule, count: int) -> CopyOutcome | None:
    """Before anything is written, with `count` copies: why it is not; None where it is."""
    if count < rule.needed_min:
        return CopyOutcome.IN_SYNC_REPLICAS_NOT_ENOUGH
    if rule.refuses and count < rule.needed_with(count):
        return CopyOutcome.REFUSED
    return None


def copied_end(rule: CopyRule, positions: Sequence[int]) -> int | None:
    """Up to where the log is on as many copies as the rule says; `positions` of those that count. None: there are too few of them, or
    the rule waits for none."""
    needed = rule.needed_with(len(positions))
    if not needed or len(positions) < needed:
        return None
    return min(positions) if rule.waits_for_all else sorted(positions, reverse=True)[needed - 1]


def outcome(rule: CopyRule, positions: Sequence[int], end: int) -> CopyOutcome | None:
    """What a message that ends at `end`, and is written, hears now; None: it waits, until FLUSH_SLAVE_TIMEOUT."""
    needed = rule.needed_with(len(positions))
    if len(positions) < needed:
        return CopyOutcome.SLAVE_NOT_AVAILABLE
    copied = copied_end(rule, positions)
    return CopyOutcome.COPIED if copied is None or copied >= end else None


def confirmable_end(rule: CopyRule, positions: Sequence[int]) -> int | None:
    """How far copies let the log be confirmed, None: as far as you like. What was confirmed stays so, whatever comes out here."""
    if rule.refuses and len(positions) < rule.needed_with(len(positions)):
        return 0
    return copied_end(rule, positions)
