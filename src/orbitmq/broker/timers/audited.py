"""What requests that change many timer messages at once, or the far tier, are about, for the audit log.

Rules of this file
1. Recalling one message is its sender's business and leaves no line; a selection of all that have a key is somebody's decision.
2. No handle is told: with it a message is recalled.
"""

from __future__ import annotations

from orbitmq.access.audit import About
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.timer_bodies import ChangeTimers, FarTierAction, FarTierRequest


def about_many(command: Command, peer: Peer) -> About | None:
    """RECALL_TIMERS, RESCHEDULE_TIMERS: what is selected, and the new time."""
    asked = ChangeTimers.decode(command.body)
    selector = asked.selector
    if not selector.all:
        return None
    given = {"topic": selector.topic, "key": selector.key, "deliverMs": asked.deliver_ms, "delayMs": asked.delay_ms}
    return About(said=" ".join(f"{name}={value}" for name, value in given.items() if value is not None))


def about_far_tier(command: Command, peer: Peer) -> About | None:
    """FAR_TIER, unless it only asks."""
    action = FarTierRequest.decode(command.body).action
    return None if action is FarTierAction.STATUS else About(said=f"action={action.value}")
