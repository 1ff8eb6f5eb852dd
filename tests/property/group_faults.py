"""Faults of a group in the order in which they hurt: what single faults of a life meet once in hundreds of lives.

Each is one fault of `group_life.FAULTS`. It first lets the group come to where the fault counts, for a time that is bounded, and leaves
the rest to what comes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.property.group_machine import Machine

if TYPE_CHECKING:
    from tests.property.group_life import Life

ELECTED_MS = 8_000
"""Within this another one leads, if one may."""
LEFT_MS = ADMITTED_MS = 4_000


def until(life: Life, what: Callable[[], bool], ms: int) -> bool:
    """Let time pass until it holds, to the millisecond; False where it does not within `ms`. Nothing changes but by what happens next."""
    end_ms = life.now_ms + ms
    while life.now_ms < end_ms:
        if what():
            return True
        life.run(min(max(life.next_ms - life.now_ms, 1), end_ms - life.now_ms))
    return False


def serving(life: Life, *, besides: str = "") -> Machine | None:
    """Everything runs and is connected, and a leader serves: who, if one does so in time."""
    if not besides:
        life.engine_back()
        life.network.heal()
        life.start_all()
    until(life, lambda: _leader(life) not in ("", besides), ELECTED_MS)
    name = _leader(life)
    return None if name in ("", besides) else life.machines[name]


def _leader(life: Life) -> str:
    leader = life.leader()
    return "" if leader is None else leader.name


def leave_one_behind(life: Life, leader: Machine) -> None:
    """Somebody is no member of the set for a while."""
    if not life.view.learners:
        life.isolate(life.rng.choice([name for name in life.machines if name != leader.name]))
        until(life, lambda: bool(life.view.learners), LEFT_MS)


def admitted_unheard(life: Life) -> None:
    """The engine admits a member, the leader does not hear of it and goes on with the others; then the new one leads."""
    leader = serving(life)
    if leader is None:
        return
    leave_one_behind(life, leader)
    life.network.heal()
    before = life.view
    life.answers_lost = 1.0
    until(life, lambda: life.view != before, ADMITTED_MS)
    joined = set(life.view.in_sync) - set(before.in_sync)
    life.answers_lost = 0.0
    if joined and life.view.leader == leader.name:
        life.engine_cut.add(leader.name)
        life.isolate(joined.pop())
        until(life, lambda: life.view.leader != leader.name, ELECTED_MS)


def lagging_named(life: Life) -> None:
    """A person lets a member lead that lacks what the others have confirmed, and they are there."""
    leader = serving(life)
    if leader is not None:
        leave_one_behind(life, leader)
        life.run(500)
        life.network.heal()
        life.name_leader(life.rng.choice(life.view.learners or life.view.members))
        life.run(1_000)


def power_before_synced(life: Life) -> None:
    """Messages are in memory everywhere and on no disk; then machines lose power and start at once. Where memory counts only the leader
    does."""
    leader = serving(life)
    if leader is None:
        return
    before, life.sync_ms = life.sync_ms, (300,)
    life.take_messages()
    life.run(30)
    life.sync_ms = before
    for machine in [leader] if leader.in_memory else life.machines.values():
        machine.power()
    life.start_all()


def come_back(life: Life) -> None:
    """A leader that was cut off comes back when nobody reaches the engine, and those after it start again: the next leader, or all, as soon
    as that one serves."""
    leader = serving(life)
    if leader is None:
        return
    old = leader.name
    life.isolate(old)
    life.engine_cut.add(old)
    serving(life, besides=old)
    everybody = [machine for name, machine in life.machines.items() if name != old]
    life.engine_cut = set(life.machines)
    life.network.heal()
    for machine in life.rng.choice((everybody, [life.machines[life.view.leader or old]])):
        machine.kill()
    life.run(20)
    life.start_all()
    life.run(3_000)
