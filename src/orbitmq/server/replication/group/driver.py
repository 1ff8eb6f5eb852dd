"""Drives the core of a member: everything that happens becomes an input, and what follows from it is done, in order, before the next one.

    log of the store, link, engine, time  ->  TimedReplica  ->  log, link, engine, what is kept, what the broker does in its role

Rules of this file
1. One input at a time. What happens while effects are done waits, and comes next.
2. An epoch is kept before anything is said in it: `EpochKept` comes from the disk, in the order of the writes.
3. An effect that fails for a while (a full disk) is tried again. One that cannot be done ends this member: it takes part no more until the
   process starts again, and keeps its files.
4. Nothing is decided here.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from orbitmq.clock import Clock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import OrbitError, RecordError, StoreUnwritableError
from orbitmq.limits.group import GROUP_KEEP_RETRY_MS, GROUP_TICK_MS
from orbitmq.replication import replica_steps as steps
from orbitmq.replication.member import TimedReplica
from orbitmq.replication.replica import Replica
from orbitmq.replication.replica_steps import Effect, Input, KeptEpoch, LogIs, ReplicaRole
from orbitmq.server.replication.group.clock_report import ClockReport
from orbitmq.server.replication.group.driver_ports import Duties, Links
from orbitmq.server.replication.group.epoch_keeping import EpochKeeping, Keep
from orbitmq.server.replication.group.group_log import GroupLog
from orbitmq.server.replication.group.leader_switch import LeaderSwitch
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.replication")

WAKEUP: Final = "group"


class Driver:
    """Of one member whose store is open. `stopped` says why it takes part no more; empty while it does."""

    def __init__(
        self,
        replica: Replica,
        log: GroupLog,
        links: Links,
        duties: Duties,
        keep: Keep,
        ask: Callable[[steps.AskEngine], None],
        clock: Clock,
        deadlines: Deadlines,
    ) -> None:
        """`ask(question)` is answered by `tell`."""
        self.replica: Final = replica
        self.member: Final = TimedReplica(replica, clock.monotonic_ns())
        self.member.lacks_room = lambda: log.store.shortage.is_near
        self.clock_report: Final = ClockReport()
        self.stopped = ""
        self.elections = 0
        """Times that this member became leader."""
        self._log = log
        self._links = links
        self._duties = duties
        self._keeping = EpochKeeping(replica, keep, self.tell, clock, deadlines)
        self._switch = LeaderSwitch(self.member, log.store, duties, clock)
        self._ask = ask
        self._clock = clock
        self._deadlines = deadlines
        self._inputs: deque[Input] = deque()
        self._is_busy = False
        self._is_over = False
        self._marker: int | None = None
        """Epoch whose marker could not be written yet."""
        self._append_failed_ns: int | None = None
        """When bytes could not be appended. Those that come count no more, until it begins to follow anew some time later."""
        self.append_trouble = ""
        """Why what the leader sends is not in the log; empty while it is."""
        self._seen: LogIs = log.state()
        self._told_dispatched = -1
        self._told_refusal = ""
        self._refusal_of: tuple[object, ...] = ()
        """What the refusal that was told came of."""
        deadlines.define(WAKEUP, self._look)

    # --- life -----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.tell(steps.DispatchedTo(self._log.store.confirm_offset))
        self.tell(steps.SayHello())
        self.tell(steps.ReadEngine())
        self._arm()

    def close(self) -> None:
        """Nothing is said or done any more."""
        self._is_over = True
        self._deadlines.disarm(WAKEUP)
        self._keeping.close()

    # --- what happens ---------------------------------------------------------------------------------------------------

    def tell(self, given: Input) -> None:
        """Something has happened; what follows is done on return, unless this is called from within."""
        if self.stopped:
            return
        self._inputs.append(given)
        if not self._is_busy:
            self._go_on([])

    def gone(self, member: str) -> None:
        """A connection to it is gone, and is refused. Not from within."""
        if not (self._is_over or self.stopped):
            self.member.gone(member)
            self._go_on(self.member.tick(self._clock.monotonic_ns()))

    def leader_heard_within(self, ms: int) -> bool:
        """Whether something came of the leader in that time."""
        return self.member.silent_ms(self._clock.monotonic_ns()) < ms

    def switch_to(self, member: str) -> bool:
        """Let another one lead as soon as it has all of the log, to which nothing is appended meanwhile. False where that is not possible.
        Where it has not become so in time, this one goes on. Not from within."""
        if not self._switch.stand_still(member):
            return False
        self.log_changed()
        self.tell(steps.SwitchTo(member))
        return True

    def log_changed(self) -> None:
        """The store has written, synced, cut or removed; also at the end of each turn."""
        log, seen = self._log.store.log, self._seen
        is_news = log.written_end != seen.written or log.synced_end != seen.synced or log.start != seen.start
        if is_news and not self._is_over:
            self._see_log()

    def _see_log(self) -> None:
        before, state = self._seen, self._log.state()
        self._seen = state
        if state.marks != before.marks:  # what becomes of the log's beginning, they are known
            self._keeping.write_again()
        self.tell(state)
        if state.written > before.written and self.replica.role is ReplicaRole.LEADING:
            self._links.log_grew()

    def _look(self) -> None:
        if self._is_over or self.stopped:
            return
        if self._marker is not None:
            self._append_marker(steps.AppendMarker(self._marker))
        failed_ns = self._append_failed_ns
        if failed_ns is not None and self._clock.monotonic_ns() >= failed_ns + GROUP_KEEP_RETRY_MS * NS_PER_MS:
            self._append_failed_ns = None
            self.tell(steps.SayHello())
        if self._log.store.is_over:
            self.end(self._log.store.trouble)
            return
        self._tell_dispatched()
        self.clock_report.look(self.member.clock_off_ms, self.replica.leader, self._clock.monotonic_ns())
        self._go_on(self.member.tick(self._clock.monotonic_ns()))
        if successor := self._switch.look():
            self.switch_to(successor)
        self._links.log_grew()
        if not self.stopped:
            self._arm()

    def _arm(self) -> None:
        self._deadlines.arm(WAKEUP, self._clock.monotonic_ns() + GROUP_TICK_MS * NS_PER_MS)

    # --- effects --------------------------------------------------------------------------------------------------------

    def _go_on(self, effects: list[Effect]) -> None:
        """Do these, and everything that follows from them and from what waits."""
        self._is_busy = True
        try:
            while not (self._is_over or self.stopped):
                for effect in effects:
                    DEEDS[type(effect)](self, effect)
                if not self._inputs:
                    break
                given = self._inputs.popleft()
                effects = self.member.step(given, self._clock.monotonic_ns(), self._clock.now_ms())
            self._tell_refusal()
        except (OrbitError, OSError, ValueError) as error:
            self.end(f"the store of this member cannot do what its group needs: {error}")
        except Exception as error:
            logger.exception("a fault of the program in what a member of a group does")
            self.end(f"a fault of the program: {type(error).__name__}: {error}")
        finally:
            self._is_busy = False

    def _tell_refusal(self) -> None:
        replica = self.replica
        came_of = replica.serves, replica.switching_to, replica.view
        if came_of == self._refusal_of:
            return
        self._refusal_of = came_of
        refusal = replica.refusal if replica.serves else ""
        if refusal != self._told_refusal:
            self._told_refusal = refusal
            self._duties.refuse(refusal)

    def _send_message(self, effect: steps.SendMessage) -> None:
        if isinstance(effect.message, steps.Follow):
            self._append_failed_ns = None
            self._log.begin_session()
        self._links.send(effect.to, effect.message)

    def _stream_log(self, effect: steps.StreamLog) -> None:
        self._links.stream(effect.to, effect.session, effect.position)

    def _end_stream(self, effect: steps.EndStream) -> None:
        self._links.end_stream(effect.to)

    def _cut_log(self, effect: steps.CutLog) -> None:
        count = self._log.cut(effect.to)
        logger.warning(
            "%d records that no leader confirmed were cut from the log, which ends at %d now and goes on as that of %s",
            count, effect.to, self.replica.leader,
        )  # fmt: skip
        self._see_log()

    def _begin_log(self, effect: steps.BeginLog) -> None:
        self._log.begin(effect.start, effect.marks)
        self._see_log()

    def _append_bytes(self, effect: steps.AppendBytes) -> None:
        if self._append_failed_ns is not None:
            return
        try:
            self._log.append(effect.position, effect.data)
        except (RecordError, StoreUnwritableError) as error:
            self._append_failed_ns = self._clock.monotonic_ns()
            if str(error) != self.append_trouble:
                self.append_trouble = str(error)
                logger.error(
                    "bytes of the leader %s are not in the log, asking for them again: %s", self.replica.leader, error
                )
        else:
            self.append_trouble = ""
        self._see_log()

    def _confirm_to(self, effect: steps.ConfirmTo) -> None:
        self._log.confirm(effect.end)
        self._tell_dispatched()

    def _tell_dispatched(self) -> None:
        """What waits for that is a leader that does not serve yet."""
        end = self._log.dispatched_end
        if end is not None and end > self._told_dispatched and not self.replica.serves:
            self._told_dispatched = end
            self.tell(steps.DispatchedTo(end))

    def _append_marker(self, effect: steps.AppendMarker) -> None:
        if self.replica.role is not ReplicaRole.LEADING or self.replica.epoch != effect.epoch:
            self._marker = None
            return
        try:
            self._log.append_marker(effect.epoch, self.replica.life)
        except StoreUnwritableError as error:
            if self._marker is None:
                logger.error("this member leads in epoch %d, and cannot write: %s", effect.epoch, error)
            self._marker = effect.epoch
            return
        self._marker = None
        self._see_log()

    def _serve(self, effect: steps.Serve) -> None:
        self.elections += 1
        logger.warning(
            "this member leads the group in epoch %d, from position %d of the log on",
            effect.epoch, self._log.store.log.end,
        )  # fmt: skip
        self._duties.serve(effect.epoch)

    def _step_down(self, effect: steps.StepDown) -> None:
        logger.warning("this member leads no more since epoch %d ended", effect.epoch)
        self._marker, self._told_refusal, self._refusal_of = None, "", ()
        self._switch.over()
        self._duties.step_down()
        self._log.answer_unknown()
        self._see_log()

    def _answer_unknown(self, effect: steps.AnswerUnknown) -> None:
        self._log.answer_unknown(effect.end)

    def _stop_member(self, effect: steps.StopMember) -> None:
        self.end(f"{effect.reason} ({effect.remedy})")

    def end(self, reason: str) -> None:
        """This member takes part no more, and keeps its files."""
        if self.stopped or self._is_over:
            return
        self.stopped = reason
        logger.error("this member takes part in its group no more, and keeps its files: %s", reason)
        self._inputs.clear()
        self._duties.stop(reason)
        self._log.answer_unknown()
        self._links.close()


DEEDS: Final[dict[type[Any], Callable[[Driver, Any], None]]] = {
    KeptEpoch: lambda driver, effect: driver._keeping.write(effect),
    steps.AskEngine: lambda driver, effect: driver._ask(effect),
    steps.SendMessage: Driver._send_message,
    steps.StreamLog: Driver._stream_log,
    steps.EndStream: Driver._end_stream,
    steps.CutLog: Driver._cut_log,
    steps.BeginLog: Driver._begin_log,
    steps.AppendBytes: Driver._append_bytes,
    steps.ConfirmTo: Driver._confirm_to,
    steps.AppendMarker: Driver._append_marker,
    steps.Serve: Driver._serve,
    steps.StepDown: Driver._step_down,
    steps.AnswerUnknown: Driver._answer_unknown,
    steps.StopMember: Driver._stop_member,
}
