"""Exchanges of roles: asked for by commands, while all is well or while a process or the link fails.

Rules of this file
1. What was asked for is done or refused; either way one of the two leads then, or, where a process was killed, one that an operator makes
   the master by one command. Never both.
2. A new master has, byte for byte, what the former one had when it said that it takes nothing any more.
3. A process that was killed starts again with the settings that it had: what it is then, it knows from its own disk.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from tests.chaos.pair_places import Pair, Place
from tests.chaos.proxy import Way

from orbitmq.protocol.remoting.codes import ResponseCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.replication_bodies import DemoteAnswer

LEADS_WITHIN_S: Final = 5.0
"""A promotion that somebody asked for who was killed has come to its end by then."""
DONE_WITHIN_S: Final = 30.0
"""A slave that was behind for a moment keeps up by then."""
KILLED_WITHIN_S: Final = 0.3
"""After the command; one that is not disturbed takes a third of that."""
CUT_BEFORE_S: Final = 0.2
HELD_BEFORE_S: Final = 0.3, 1.0
LET_GO_AFTER_S: Final = 1.0, 4.5
"""A master waits 3 s for its slave."""
LOOKED_EVERY_S: Final = 0.05


class Exchanges:
    """Of one pair. `look()`: what is judged while something is broken. Findings are appended to `findings`."""

    def __init__(
        self, pair: Pair, chance: random.Random, findings: list[str], look: Callable[[], Awaitable[None]]
    ) -> None:
        self._pair = pair
        self._chance = chance
        self._findings = findings
        self._look = look
        self.told: Counter[str] = Counter()
        """What whoever asked was told, and how often an operator had to say who leads."""

    async def undisturbed(self) -> None:
        """Refused only as long as the slave does not keep up."""
        former, ends = self._pair.master, time.monotonic() + DONE_WITHIN_S
        while self._pair.master is former:
            await self._asked(asyncio.sleep(0))
            if time.monotonic() > ends:
                self._findings.append(f"no exchange of roles within {DONE_WITHIN_S} s")
                return

    async def in_two_steps(self) -> None:
        former = self._pair.master
        ends = time.monotonic() + DONE_WITHIN_S
        while self._note(answer := await asyncio.to_thread(former.demote)) is None:
            if time.monotonic() > ends:
                self._findings.append(f"a master did not become a slave within {DONE_WITHIN_S} s: {answer}")
                return
            await asyncio.sleep(LOOKED_EVERY_S)
        await asyncio.sleep(self._chance.uniform(0, 0.5))
        await self._judge_leaders(allowed=0)
        await self._pair.promote()
        await self._judge_new_master(former, answer)

    async def killing(self, place: Place, *, power: bool = False) -> None:
        """During a switch, or with `power` its power is cut; it is back before whoever asked has his answer, or after it."""
        at_once = self._chance.random() < 0.5

        async def kill() -> None:
            await asyncio.sleep(self._chance.uniform(0, KILLED_WITHIN_S))
            await asyncio.to_thread(place.cut_power if power else place.kill)
            await self._look()
            if at_once:
                await self._pair.start_again(place)

        await self._asked(kill(), place if not at_once else None)

    async def while_cut(self) -> None:
        links = [place.link for place in self._pair.places]

        async def cut() -> None:
            for link in links:
                link.cut()
            await self._look()

        at_s = self._chance.uniform(-CUT_BEFORE_S, CUT_BEFORE_S)
        if at_s < 0:
            await cut()
            await asyncio.sleep(-at_s)
            await self._asked(asyncio.sleep(0))
        else:
            await self._asked(_after(at_s, cut))
        for link in links:
            link.mend()

    async def while_held(self, *, log: bool) -> None:
        """What goes to the slave does not arrive, or with `log` False what comes from there."""
        master, places = self._pair.master, self._pair.places
        ways = (Way.TO_CLIENT, Way.TO_SERVER) if log else (Way.TO_SERVER, Way.TO_CLIENT)
        for place in places:
            place.link.hold(ways[place is not master])
        await asyncio.sleep(self._chance.uniform(*HELD_BEFORE_S))
        await self._look()

        async def let_go() -> None:
            await asyncio.sleep(self._chance.uniform(*LET_GO_AFTER_S))
            for place in places:
                place.link.let_go()

        await self._asked(let_go())

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _asked(self, meanwhile: Awaitable[None], starts_again: Place | None = None) -> None:
        """A switch, and what happens at the same time. Who leads when both are over is the pair's master."""
        former = self._pair.master
        is_over = asyncio.Event()
        watching = asyncio.create_task(self._watch(is_over))
        try:
            answer, _ = await asyncio.gather(
                asyncio.to_thread(former.demote, hands_over=True, successor=self._successor()), meanwhile
            )
            self._note(answer)
            if starts_again is not None:
                await self._pair.start_again(starts_again)
            await self._find_leader()
        finally:
            is_over.set()
            await watching
        if self._pair.master is not former:
            await self._judge_new_master(former, answer)

    def _successor(self) -> int:
        """The slave, or of several any, or nobody is named."""
        return self._chance.choice([0, *(place.slave_id for place in self._pair.slaves)]) if self._pair.others else 0

    def _note(self, answer: Command | None) -> Command | None:
        """The answer if the master became a slave."""
        done = answer is not None and answer.code == ResponseCode.SUCCESS
        refused = answer is not None and answer.code == ResponseCode.NO_PERMISSION
        self.told["done" if done else "refused" if refused else "nothing" if answer is None else "failed"] += 1
        return answer if done else None

    async def _watch(self, is_over: asyncio.Event) -> None:
        while not (is_over.is_set() or self._findings):
            await self._judge_leaders(allowed=1)
            await asyncio.sleep(LOOKED_EVERY_S)

    async def _judge_leaders(self, allowed: int) -> None:
        leading = await asyncio.to_thread(self._leading)
        if len(leading) > allowed:
            self._findings.append(f"{len(leading)} brokers lead where {allowed} may")

    def _leading(self) -> list[Place]:
        """Several only where they led at one moment: each before and after the last one was asked."""
        found = [place for place in self._pair.places if place.leads()]
        return [place for place in found[:-1] if place.leads()] + found[-1:]

    def _leading_soon(self) -> list[Place]:
        ends = time.monotonic() + LEADS_WITHIN_S
        while not (leading := self._leading()) and time.monotonic() < ends:
            time.sleep(LOOKED_EVERY_S)
        return leading

    async def _find_leader(self) -> None:
        leading = await asyncio.to_thread(self._leading_soon) or [await self._operator_decides()]
        if leading[0] is not self._pair.master:
            self._pair.leads_now(leading[0])

    async def _operator_decides(self) -> Place:
        """Nobody leads: one command to one that has everything."""
        places = self._chance.sample(self._pair.places, len(self._pair.places))
        ends = [await asyncio.to_thread(place.end) for place in places]
        chosen = places[ends.index(max(ends))]
        answer = await asyncio.to_thread(chosen.promote)
        self.told["decided by an operator"] += 1
        if answer.code != ResponseCode.SUCCESS:
            self._findings.append(f"nobody leads, and the one with everything does not either: {answer.remark}")
        return chosen

    async def _judge_new_master(self, former: Place, answer: Command | None) -> None:
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        end = DemoteAnswer.decode(answer.body).end
        had, has = [(await asyncio.to_thread(place.log))[:end] for place in (former, self._pair.master)]
        if had != has:
            self._findings.append(f"the new master leads without all that the former one had, up to {end}")


async def _after(pause_s: float, act: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(pause_s)
    await act()
