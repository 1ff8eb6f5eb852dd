"""What a person has a replicated group do: let another member lead, lead although something is lost, take a member out.

The requests are the pair's: DEMOTE_MASTER with `hands_over` to the leader is a planned switch, PROMOTE_SLAVE to a member accepts a loss,
FORGET_SLAVE to the leader takes a member out.

Rules of this file
1. One command at a time. What is refused changes nothing, and says what may be lost or is to be done first.
2. Nothing is believed but what the engine holds afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from orbitmq.errors import ClientError, OrbitError
from orbitmq.limits.group import GROUP_LEAVE_MS, GROUP_SWITCH_ANSWER_MS, GROUP_TICK_MS, LEADER_SILENT_MS
from orbitmq.limits.replication import RESTART_AFTER_MS, TICKET_REQUEST_MS
from orbitmq.protocol.remoting.bodies import HaRuntimeInfo
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import request
from orbitmq.protocol.remoting.replication_bodies import (
    DemoteAnswer,
    DemoteRequest,
    PromoteAnswer,
    PromoteRequest,
    ReseedAnswer,
    ReseedRequest,
)
from orbitmq.replication import replica_steps as steps
from orbitmq.replication.replica_steps import ReplicaRole
from orbitmq.replication.view import View, view_after_restore
from orbitmq.server.connections.addresses import endpoint
from orbitmq.server.replication.asking import call_once
from orbitmq.server.replication.reseeding import decide_aside, why_not_aside

if TYPE_CHECKING:
    from orbitmq.server.replication.group.broker_member import BrokerMember
    from orbitmq.server.replication.group.driver import Driver

logger = logging.getLogger("orbitmq.replication")

CHANGED: Final = "the group has changed meanwhile"
LOOK: Final = "look at `orbitmq replica status`, and ask again"


class GroupRefused(OrbitError):
    """A group does not do what a person asked for, and goes on as before; the remedy says what to do first."""


class GroupCommands:
    """Of one member. All are called on the loop."""

    def __init__(self, member: BrokerMember) -> None:
        self._member = member
        self._under_way: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """What is under way ends where it is."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.gather(self._under_way, return_exceptions=True)

    # --- requests -------------------------------------------------------------------------------------------------------

    def demote(self, wanted: DemoteRequest, done: Callable[[DemoteAnswer | OrbitError], None]) -> None:
        """Let another member lead: the one with that id, else the one that has most."""
        self._begin("switch", self._switch(wanted), done)

    def promote(self, wanted: PromoteRequest, done: Callable[[PromoteAnswer | OrbitError], None]) -> None:
        """Have this member lead, whatever it lacks."""
        self._begin("accept loss", self._accept_loss(wanted), done)

    def reseed(self, wanted: ReseedRequest, done: Callable[[ReseedAnswer | OrbitError], None]) -> None:
        """Have this member begin anew: its store is put aside, and it is sent the leader's log."""
        self._begin("reseed", self._reseed(wanted), done)

    def remove(self, member_id: int, done: Callable[[bool | OrbitError], None]) -> None:
        """Take the member with that id out of the group. False: there is none."""
        self._begin("remove", self._remove(member_id), done)

    def _begin(self, name: str, work: Coroutine[Any, Any, Any], done: Callable[[Any], None]) -> None:
        if self._under_way is not None:
            work.close()
            done(GroupRefused("another command is under way at this member"))
            return

        async def run() -> None:
            try:
                answer = await work
            except OrbitError as error:
                answer = error
            except Exception as error:
                logger.exception("the command %s came to no end", name)
                answer = GroupRefused(f"{name}: {type(error).__name__}: {error}")
            finally:
                self._under_way = None
            done(answer)
            self._member.process.turn.schedule()

        self._under_way = asyncio.get_running_loop().create_task(run(), name=name)

    # --- what they do ---------------------------------------------------------------------------------------------------

    def _driver(self) -> tuple[Driver, View]:
        driver = self._member.driver
        if driver is None or driver.stopped or driver.replica.view is None:
            raise GroupRefused(
                f"this member does not take part: {self._member.outside or 'the engine was not heard yet'}"
            )
        return driver, driver.replica.view

    async def _switch(self, wanted: DemoteRequest) -> DemoteAnswer:
        driver, _ = self._driver()
        if not wanted.hands_over:
            raise GroupRefused(
                "the members of a group choose their leader", remedy="let another one lead: orbitmq replica switch"
            )
        successor, end = self._successor(wanted.successor), self._member.store.log.written_end
        epoch = driver.replica.epoch
        if not successor:
            which = f"with the id {wanted.successor} " if wanted.successor else ""
            raise GroupRefused(f"no other member {which}is in sync", remedy="look at `orbitmq replica status`")
        if not driver.switch_to(successor):
            raise GroupRefused(f"{successor} cannot lead now: this member does not serve")
        await self._until(lambda: driver.replica.epoch > epoch or not driver.replica.switching_to)
        if driver.replica.epoch == epoch:
            raise GroupRefused(f"{successor} did not lead in time: this member goes on", remedy="ask again")
        own_id, place = self._member.member_id(self._member.own.name), self._member.places.get(successor)
        return DemoteAnswer(broker_id=own_id, end=end, master="" if place is None else place.address)

    def _successor(self, wanted_id: int) -> str:
        """The member in sync with that id, or for 0 the one with a right clock that has most; empty where there is none."""
        driver, view = self._driver()
        others = [name for name in view.in_sync if name != view.leader]
        if wanted_id:
            others = [name for name in others if self._member.member_id(name) == wanted_id]
        return driver.member.successor(others)

    async def leave(self) -> None:
        """Before this member stops: a leader lets another one lead, and who is in the set goes out of it, where enough are left, so that
        nobody waits for it. It stops all the same where that does not come about in a short time."""
        driver, _ = self._driver()
        replica, own = driver.replica, self._member.own
        epoch, end = replica.epoch, self._member.store.log.written_end
        if self._member.duties.leads and (successor := self._successor(0)) and driver.switch_to(successor):
            await self._until(lambda: replica.epoch > epoch and replica.confirmed > end, GROUP_LEAVE_MS)
        held = await self._member.calls.read()
        if held.view is not None and own.name != held.view.leader and held.view.may_drop(own.name):
            await self._member.calls.change(held, held.view.leave(own.name))

    async def _accept_loss(self, wanted: PromoteRequest) -> PromoteAnswer:
        stopped = self._member.driver
        if stopped is not None and stopped.stopped and stopped.replica.questions.has_gone_back:
            return await self._lead_after_restore(stopped, wanted)
        driver, view = self._driver()
        replica, own = driver.replica, self._member.own.name
        end = self._member.store.log.written_end
        if driver.replica.serves:
            raise GroupRefused("this member leads")
        if (
            not wanted.although_master_lives
            and replica.following.is_matched
            and driver.leader_heard_within(LEADER_SILENT_MS)
        ):
            raise GroupRefused(
                f"the leader {replica.leader} lives, and nothing has to be lost",
                remedy="orbitmq replica switch lets this member lead, once it is in sync",
            )
        others = [name for name in view.in_sync if name != own]
        if not wanted.although_behind:
            what = "is in sync: it has all that was confirmed, as far as this member knows" if own in view.in_sync else (
                f"may lack what {', '.join(others)} {'has' if len(others) == 1 else 'have'}"
            )  # fmt: skip
            raise GroupRefused(
                f"this member has the log up to {end}, confirmed up to {replica.confirmed}, and {what}. What it lacks is lost, and who has "
                "more stops and has to be copied anew",
                remedy="start one of those first; or say that the loss is accepted",
            )
        held = await self._member.calls.read()
        if held.view is None:
            raise GroupRefused("the engine knows nothing of this group")
        self._member.duties.accept_loss()  # before the engine hears of it: this member may lead before the answer comes
        try:
            after = await self._member.calls.change(held, held.view.accept_loss(own))
        except ValueError as error:
            raise GroupRefused(str(error)) from error
        if after.view is None or after.view.leader != own:
            raise GroupRefused(CHANGED, remedy=LOOK)
        return await self._leads(driver, end)

    async def _lead_after_restore(self, stopped: Driver, wanted: PromoteRequest) -> PromoteAnswer:
        """The engine has forgotten what it said: it is told what counts from now on, and this member takes part again."""
        member, seen = self._member, stopped.replica.kept
        end, own = member.store.log.written_end, member.own.name
        if not wanted.although_behind:
            raise GroupRefused(
                f"the engine has forgotten the group. This member has the log up to {end}, confirmed up to {stopped.replica.confirmed}, of "
                f"epoch {seen.epoch}; what others have beyond it is lost, and who has more stops and has to be copied anew",
                remedy="compare the members, and say to the one that led last that the loss is accepted",
            )
        held = await member.calls.read()
        if held.view is not None and not held.view.lies_before(seen.epoch, seen.serial):
            raise GroupRefused(
                f"the engine knows the group again, and {held.view.leader or 'nobody'} leads",
                remedy="start this member again",
            )
        others = await member.calls.others()
        others += sorted(member.source.places)  # who was a member lately, and is not present
        wanted_view = view_after_restore(own, others, (seen.epoch, seen.serial), held.view, far=member.far.named)
        if (await member.calls.change(held, wanted_view)).view != wanted_view:
            raise GroupRefused(CHANGED, remedy=LOOK)
        member.duties.accept_loss()
        await member.begin_anew()
        assert member.driver is not None, "it takes part"
        return await self._leads(member.driver, end)

    async def _leads(self, driver: Driver, end: int) -> PromoteAnswer:
        logger.warning("a person accepts that what this member lacks is lost: it leads, with the log up to %d", end)
        driver.tell(steps.ReadEngine())
        replica = driver.replica

        def waits_for_others() -> bool:
            return replica.role is ReplicaRole.LEADING and replica.view is not None and not replica.view.confirms

        await self._until(lambda: replica.serves or waits_for_others() or bool(driver.stopped))
        if not replica.serves:
            raise GroupRefused(
                driver.stopped or "this member is the leader now, and serves when another one is in sync with it",
                remedy="start another one, or take out those that are gone: orbitmq replica remove",
            )
        port = self._member.port.address
        return PromoteAnswer(end=end, port_for_slaves="" if port is None else endpoint(*port))

    async def _remove(self, member_id: int) -> bool:
        driver, view = self._driver()
        name = next((one for one in view.members if self._member.member_id(one) == member_id), "")
        if driver.replica.role is not ReplicaRole.LEADING:
            raise GroupRefused("this member does not lead", remedy="ask the leader")
        if not name:
            return False
        if any(one.member == name for one in self._member.port.connections) and driver.member.hears(
            name, self._member.process.clock.monotonic_ns()
        ):
            raise GroupRefused(
                f"member {name} is there and follows",
                remedy="stop it first; ids change when a member goes: `orbitmq replica status`",
            )
        held = await self._member.calls.read()
        try:
            wanted = None if held.view is None else held.view.remove(name)
        except ValueError as error:
            raise GroupRefused(str(error), remedy="let another member lead first: orbitmq replica switch") from error
        if wanted is None:
            return False
        after = await self._member.calls.change(held, wanted)
        if after.view is None or name in after.view.members:
            raise GroupRefused(CHANGED, remedy=LOOK)
        driver.tell(steps.ReadEngine())
        return True

    async def _reseed(self, wanted: ReseedRequest) -> ReseedAnswer:
        member, process = self._member, self._member.process
        end, own, kept = member.store.log.written_end, member.own, member.kept
        if not end:
            raise GroupRefused("this member has nothing yet that could be put aside")
        if why_not := why_not_aside(process.files, process.settings.data, process.settings.store):
            raise GroupRefused(f"the store cannot be put aside: {why_not}")
        leader_end = await self._end_at_leader()
        driver = member.driver
        follows = driver is not None and not driver.stopped and driver.replica.following.is_matched
        if not (follows or wanted.although_parted):
            raise GroupRefused(
                f"this member follows nobody ({member.outside or 'its log was not compared yet'}), and may have what its leader has not: "
                f"its log ends at {end}, the leader's at {leader_end}",
                remedy="look which of both logs counts; or ask for it although they have parted, and what this one has is only put aside",
            )
        await self._leave_set()
        aside = await decide_aside(kept, process.clock, leader_end)
        begins_again = member.changes.begins_again
        logger.warning(
            "the store of member %s is put aside by a command, %s, in %s: it is sent the leader's log again",
            own.name, "now" if begins_again else "at its next start", aside,
        )  # fmt: skip
        if begins_again is not None:
            asyncio.get_running_loop().call_later(RESTART_AFTER_MS / 1_000, begins_again)
        return ReseedAnswer(aside=aside, restarts=begins_again is not None)

    async def _end_at_leader(self) -> int:
        """Where the leader's log ends, which answers. GroupRefused where this member's store is needed, or may be."""
        member = self._member
        view = (await member.calls.read()).view
        if view is None:
            raise GroupRefused("the engine knows nothing of this group", remedy="see `orbitmq replica accept-loss`")
        self._refuse_needed(view)
        leader = await member.calls.address_of(view.leader)
        if not leader:
            raise GroupRefused(
                "nobody leads the group who could send its log", remedy="look at `orbitmq replica status`"
            )
        process = member.process
        status = request(RequestCode.GET_BROKER_HA_STATUS)
        try:
            answer = await call_once(leader, status, TICKET_REQUEST_MS, process.clock, process.calling)
            found = HaRuntimeInfo.decode(bytes(answer.body)) if answer.code == ResponseCode.SUCCESS else None
        except (ClientError, ValueError) as error:
            raise GroupRefused(f"the leader at {leader} cannot be asked: {error}") from error
        if found is None or not found.master:
            raise GroupRefused(f"the broker at {leader} does not say that it leads", remedy="ask again")
        return found.master_commit_log_max_offset

    def _refuse_needed(self, view: View) -> None:
        own = self._member.own.name
        if view.leader == own:
            raise GroupRefused("this member leads", remedy="let another one lead first: orbitmq replica switch")
        if own in view.in_sync and not view.may_drop(own):
            raise GroupRefused(
                f"this member is in sync, and without it fewer would be than {view.in_sync_min}, which a confirmed message needs",
                remedy="have another one catch up first: `orbitmq replica status`",
            )

    async def _leave_set(self) -> None:
        """Nobody counts on this member any more. Of two that ask at once the second one hears that it is needed. Raises
        GroupRefused, EngineError."""
        member, own = self._member, self._member.own
        held = await member.calls.read()
        while held.view is not None and own.name in held.view.in_sync:
            self._refuse_needed(held.view)
            held = await member.calls.change(held, held.view.leave(own.name))

    async def _until(self, is_done: Callable[[], bool], limit_ms: int = GROUP_SWITCH_ANSWER_MS) -> None:
        for _ in range(limit_ms // GROUP_TICK_MS):
            if is_done():
                return
            await asyncio.sleep(GROUP_TICK_MS / 1_000)
