"""The gate of the copies: what slaves report decides what a store confirms, and what its senders hear.

    copies say                                the store
    needed, and enough of them count          confirms what they have; who waits hears OK
    needed, and too few count                 confirms as if it were alone: 12 for who waits, 11 without a slave and for who comes later
    the same, and the rule refuses            confirms nothing and takes nothing; UNKNOWN for who waits
    not needed                                does not ask

Rules of this file
1. Everything that happens to a slave or to the log goes through here. `Copies` says who counts, the store what is confirmed.
2. A copy that joins holds confirming back before it counts: what is confirmed from then on is on it as well.
3. A master begins with no copy. What it finds behind its confirmed offset is confirmed by the first look (`turn_ended`), unless the rule
   refuses: then it waits for a copy.
"""

from __future__ import annotations

from typing import Final

from orbitmq.clock import Clock
from orbitmq.replication.acknowledgements import CopyOutcome
from orbitmq.replication.copies import Copies, Copy
from orbitmq.store.durability import PutStatus
from orbitmq.store.store import MessageStore

LATE: Final = "copies that are late"
"""Name of the wake-up that finds them."""

REFUSAL: Final = "copies"
"""Name of the reason why a store takes nothing."""

REASONS: Final = {
    CopyOutcome.IN_SYNC_REPLICAS_NOT_ENOUGH: "fewer copies keep up than minInSyncReplicas asks for",
    CopyOutcome.REFUSED: "too few copies keep up, and refuseWithoutCopies is set",
}


class CopiesGate:
    """Of one open store that takes messages. Until `close` nobody else tells its confirmation of copies."""

    def __init__(self, store: MessageStore, copies: Copies, clock: Clock) -> None:
        self.copies: Final = copies
        self._store = store
        self._clock = clock
        self._holds = False
        self._is_over = False
        self._refuses = True
        """Whether the store may have been told to take nothing."""
        self._noted = -1, -1
        """Where the log ended and was confirmed when the copies heard of it last."""
        self._watches: int | None = None
        """How often copies had changed when LATE was armed; None while it is not. Until one changes, nobody is late earlier than that."""
        store.deadlines.define(LATE, self._look)
        self._settle()

    # --- slaves -------------------------------------------------------------------------------------------------------

    def connected(
        self, slave: str, position: int, *, counts_as: str | None = None, seeding: bool = False, damaged: bool = False
    ) -> Copy | None:
        """See `Copies.connected`."""
        now_ns = self._clock.monotonic_ns()
        copy = self.copies.connected(slave, position, now_ns, counts_as=counts_as, seeding=seeding, damaged=damaged)
        self._settle()
        return copy

    def reported(self, copy: Copy, position: int) -> None:
        self.copies.reported(copy, position, self._clock.monotonic_ns())
        self._settle()

    def seeded(self, copy: Copy) -> None:
        self.copies.seeded(copy, self._clock.monotonic_ns())
        self._settle()

    def gone(self, copy: Copy) -> None:
        self.copies.gone(copy)
        self._settle()

    # --- the log ------------------------------------------------------------------------------------------------------

    def turn_ended(self) -> None:
        """The log of this turn is written."""
        if self._note_log():
            self._settle()

    def close(self) -> None:
        """This broker is no master any more, or stops: nobody waits for copies through this object. What is not confirmed stays so; who
        waits is told UNKNOWN."""
        self._is_over = True
        self._store.deadlines.disarm(LATE)
        self._store.allow(REFUSAL)
        self._store.confirmation.hold_for_copies(self._store.confirm_offset)
        self._store.confirmation.give_up_waiting()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._watches = None
        self.copies.tick(self._clock.monotonic_ns())
        self._settle()

    def _note_log(self) -> bool:
        """Whether the log is another one than when the copies heard of it last. Reports and LATE bring everything else that changes."""
        store = self._store
        noted = store.log.written_end, store.confirm_offset
        if noted == self._noted:
            return False
        self._noted = noted
        self.copies.log_is(*noted, self._clock.monotonic_ns())
        return True

    def _settle(self) -> None:
        """Tell the store what follows from where the copies are now."""
        if self._is_over:
            return
        if self._holds or self.copies.rule.needed:
            self._tell_store()
        if self._watches != self.copies.changes and (due_ns := self.copies.due_ns) is not None:
            self._watches = self.copies.changes
            self._store.deadlines.arm(LATE, due_ns + 1)

    def _tell_store(self) -> None:
        copies, store, confirmation = self.copies, self._store, self._store.confirmation
        rule, why_not = copies.rule, copies.refusal
        if why_not is not None:
            store.refuse(REFUSAL, REASONS[why_not])
        elif self._refuses:
            store.allow(REFUSAL)
        self._refuses = why_not is not None
        end = copies.confirmable_end
        if end is None:
            self._holds = False
            is_alone = not any(True for _ in copies)
            without = PutStatus.SLAVE_NOT_AVAILABLE if rule.needed else PutStatus.PUT_OK
            confirmation.let_pass(without if is_alone else PutStatus.FLUSH_SLAVE_TIMEOUT, without)
            return
        if not self._holds:
            self._holds = True
            confirmation.hold_for_copies(max(end, store.confirm_offset))
        confirmation.copies_have(end)
        if why_not is not None:
            confirmation.give_up_waiting()
        self._note_log()  # a copy may be level with it now
