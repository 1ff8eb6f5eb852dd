"""Renewal: what push consumers hold is hidden for longer while they are there, and given back when they go.

Rules of this file
1. What is held is decided by `held_messages`, and hidden by `PopSettling`. Nothing wakes up while nothing is held.
2. A message whose group is gone, or that was settled or came back by another way, is held no more.
3. When a client goes, by its own word, by silence or because the broker stops, what it held is visible at once, as another attempt.

Source: RocketMQ gRPC, auto-renew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from orbitmq.broker.core import BrokerCore
from orbitmq.broker.messaging.held_messages import HeldMessage, HeldMessages
from orbitmq.broker.messaging.popped import is_wrong_handle, named_by, renewed_handle
from orbitmq.broker.messaging.sessions import Session, Sessions
from orbitmq.broker.messaging.settings import MessagingSettings
from orbitmq.broker.pop.pops import Pops
from orbitmq.broker.refusal import Refusal
from orbitmq.limits.grpc import RENEWED_AT_ONCE_MAX
from orbitmq.protocol.grpc.merged_settings import retry_delay_ms
from orbitmq.protocol.grpc.receipt_handles import decode_handle
from orbitmq.units import NS_PER_MS

RENEWALS: Final = "renewed messages"
"""Name of the wake-up that looks at what is held."""


class Renewals:
    def __init__(
        self,
        core: BrokerCore,
        pops: Pops,
        sessions: Sessions,
        settings: MessagingSettings,
        held: HeldMessages | None = None,
    ) -> None:
        self.held: Final = held or HeldMessages()
        self._figures = pops.figures
        self._groups = core.groups
        self._clock = core.clock
        self._deadlines = core.deadlines
        self._settling = pops.settling
        self._settings = settings
        self._gone: deque[HeldMessage] = deque()
        """What clients held that have gone."""
        sessions.ended.append(self._ended)
        core.deadlines.define(RENEWALS, self.run_due)

    def hold(
        self, session: Session | None, topic: str, group: str, given: Iterable[tuple[str, int]], popped_ms: int
    ) -> None:
        """Messages that a client was given by a receive that wants them renewed: handles, and how often each was delivered before."""
        look_ms = popped_ms + self._settings.renewed_invisible_ms - self._settings.renewal_ahead_ms
        for handle, attempts_before in given:
            if session is None or not self._settings.renews:
                self._figures.not_renewed_count += 1
                continue
            held = HeldMessage(
                owner=session,
                topic=topic,
                group=group,
                first_handle=handle,
                handle=handle,
                first_ms=popped_ms,
                attempts_before=attempts_before,
            )
            self._figures.not_renewed_count += not self.held.hold(held, look_ms)
        self._arm()

    def find(self, session: Session | None, topic: str, group: str, handle: str) -> HeldMessage | None:
        """What a client means by a handle, where that was replaced by newer ones."""
        return None if session is None else self.held.find(session, topic, group, handle)

    def drop(self, held: HeldMessage | None) -> None:
        """A message was settled, or hidden by its client: it is renewed no more."""
        if held is not None:
            self.held.drop(held)

    def run_due(self) -> None:
        """Renew what is due, and give back what nobody holds any more; a bounded number of messages."""
        left = RENEWED_AT_ONCE_MAX - self._give_back(RENEWED_AT_ONCE_MAX)
        now_ms = self._clock.now_ms()
        due = self.held.take_due(now_ms, left)
        for held in due:
            self._renew(held, now_ms)
        self._arm(at_once=len(due) == left)

    def close(self) -> None:
        """Give back everything that is to be given back."""
        self._give_back(len(self._gone))
        self._arm()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _arm(self, *, at_once: bool = False) -> None:
        now_ns = self._clock.monotonic_ns()
        if at_once or self._gone:
            self._deadlines.arm(RENEWALS, now_ns)
        elif len(self.held):
            self._deadlines.arm(RENEWALS, now_ns + self._settings.renewal_period_ms * NS_PER_MS)
        else:
            self._deadlines.disarm(RENEWALS)

    def _renew(self, held: HeldMessage, now_ms: int) -> None:
        config, settings = self._groups.known(held.group), self._settings
        if config is None:
            self.held.drop(held)
            return
        next_ms = held.next_ms(now_ms, settings.renewal_total_ms)
        invisible_ms = retry_delay_ms(config, held.attempts_before) if next_ms is None else next_ms
        handle = decode_handle(held.handle)
        message = named_by(handle, held.topic, held.group)
        try:
            hiding = self._settling.hide(*message, min(invisible_ms, settings.invisible_ms_max))
        except Refusal as refusal:
            self._failed(held, now_ms, refusal)
            return
        if next_ms is None:
            self._give_up(held)
            return
        self._figures.renewed_count += 1
        held.handle = renewed_handle(handle, hiding).encode()
        held.renewal_count += 1
        held.failure_count = 0
        self.held.look_at(held, hiding.popped_ms + hiding.invisible_ms - settings.renewal_ahead_ms)

    def _failed(self, held: HeldMessage, now_ms: int, refusal: Refusal) -> None:
        """The message is there no more, or the store cannot say now that it is hidden for longer."""
        held.failure_count += 1
        if is_wrong_handle(refusal) or held.failure_count >= self._settings.renewal_failures_max:
            self._give_up(held)
        else:
            self.held.look_at(held, now_ms + self._settings.renewal_period_ms)

    def _give_up(self, held: HeldMessage) -> None:
        self._figures.given_up_count += 1
        self.held.drop(held)

    def _ended(self, session: Session) -> None:
        self._gone += self.held.take_all(session)
        self._arm()

    def _give_back(self, limit: int) -> int:
        """Of what clients held that have gone; how many were looked at. Nobody gets them: they are visible now, instead of after their
        invisible time."""
        gone = [self._gone.popleft() for _ in range(min(limit, len(self._gone)))]
        messages = [named_by(decode_handle(held.handle), held.topic, held.group) for held in gone]
        self._figures.client_gone_count += self._settling.show(messages, suspended=False)
        return len(gone)
