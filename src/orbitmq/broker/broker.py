"""The broker: it hands each request to the room that answers it, and ends the turns of all.

A front end hands over decoded requests (`handle`), tells when all sockets that were ready have been read (`end_turn`),
and when a connection is gone (`peer_closed`). Whoever owns the event loop calls `tick` at `next_tick_ns`.

Rules of this file
1. Every request gets an answer unless it is oneway: an unknown code the protocol's "not supported", a failing handler
   SYSTEM_ERROR. No request harms another connection.
2. At the end of a turn the log is written before any answer of the turn leaves, and an answer to what changed a table waits until
   that is saved: what a client was told survives this process.
3. Periodic work has a name, is armed only while there is something to do, and its wake-ups are counted
   (`deadlines.wakeups`). An idle broker is not woken.
4. Where there is a gate, no handler runs before it has let the request through, also when a request is asked again.
5. One thread. File work that takes long goes to the worker of the core.
6. What a broker does stands in its rooms (`rooms`); here is what is the same for all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from orbitmq.access.audit import audited, in_fields, tell_denied
from orbitmq.access.gate import Denied, LedTo
from orbitmq.broker.copied_log import MASTERS_ONLY
from orbitmq.broker.core import BrokerCore, Facilities
from orbitmq.broker.derived_state import DerivedState
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.room import NotAnsweredYet, RequestHandler, Room, having
from orbitmq.broker.rooms import BrokerRooms
from orbitmq.broker.settings import BrokerSettings
from orbitmq.clock import Clock
from orbitmq.errors import OrbitError
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode, absent_field
from orbitmq.protocol.remoting.frame import FLAG_ONEWAY, Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.requests import REQUESTS, NamedBy, RequestServer, not_supported
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.reads import RecordsNotInMemory
from orbitmq.store.store import MessageStore
from orbitmq.timing.appending import NOT_ATTACHED

logger = logging.getLogger("orbitmq.broker")

READ_HEADER = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY})
"""Codes that a request gets whether its header can be read or not."""


class Broker:
    def __init__(self, core: BrokerCore, rooms: BrokerRooms) -> None:
        self.core: Final = core
        self.rooms: Final = rooms
        # What every room shares, for those who look at a broker.
        self.settings: Final = core.settings
        self.store: Final = core.store
        self.clock: Final = core.clock
        self.topics: Final = core.topics
        self.groups: Final = core.groups
        self.offsets: Final = core.offsets
        self.clients: Final = core.clients
        self.locks: Final = core.locks
        self.statistics: Final = core.statistics
        self.tally: Final = core.tally
        self.deadlines: Final = core.deadlines
        subjects = {code: subject for room in rooms.all for code, subject in room.subjects().items()}
        self._handlers = {
            code: audited(code, handler, subjects.get(RequestCode(code), in_fields))
            for code, handler in merged(room.handlers() for room in rooms.all).items()
        }
        self._excess_handlers = merged(room.excess_handlers() for room in rooms.all)
        self._gate: Final = core.facilities.gate
        self._led_to = records_led_to(rooms.all)
        if self._gate is not None:
            _check_led_to(self._handlers, self._led_to)
        self._saving = core.saving
        self._records = core.records
        access = core.facilities.access
        self.users: Final = None if access is None else access.table
        """Who is known here; None where nobody is asked."""
        self._arrived = [room.arrived for room in having(rooms.all, "arrived")]
        self._turn_ended = [room.turn_ended for room in having(rooms.all, "turn_ended")]
        self._arm = [room.arm for room in having(rooms.all, "arm")]
        self._peer_closed = [room.peer_closed for room in having(rooms.all, "peer_closed")]
        self.tally.serve(self._handlers)
        self.store.arrival = self._arrival

    # --- the front end's side ---------------------------------------------------------------------------------------

    def handle(self, request: Command, peer: Peer) -> Command | None:
        """The answer; None when it comes later through the peer, or never."""
        handler = self._handlers.get(request.code)
        if handler is None:
            self.tally.unsupported += 1
            answer: Command | None = response(
                request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported(request.code, RequestServer.BROKER)
            )
        else:
            self.tally.requests[request.code] += 1
            waiting = self.store.waiter_count
            try:
                if self._gate is not None:
                    self._gate.admit(request, peer, self._led_to.get(request.code))
                if self.store.is_copy and request.code in MASTERS_ONLY:
                    raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_ATTACHED)
                answer = handler(request, peer)
            except Denied as denied:
                return self._denied(request, peer, denied)
            except Refusal as refusal:
                fields = refusal.fields
                answer = response(request, refusal.code, refusal.remark, None if fields is None else dict(fields))
            except RecordsNotInMemory as missing:
                self.store.fetch(missing, lambda: self._handle_again(request, peer))
                return None
            except NotAnsweredYet as later:
                later.wait(lambda: self._handle_again(request, peer))
                return None
            except OrbitError as error:
                answer = response(request, ResponseCode.SYSTEM_ERROR, str(error))
            except OSError as error:
                logger.error("request code %d from %s failed: %s", request.code, peer.address, error)
                answer = response(
                    request, ResponseCode.SYSTEM_ERROR, f"the store cannot be read or written now: {error}"
                )
            except Exception as error:
                self.statistics.failed_handler_count += 1
                logger.exception("request code %d from %s failed", request.code, peer.address)
                answer = response(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
            if answer is not None and answer.code:
                if answer.code not in READ_HEADER and (name := absent_field(request.code, request.fields)):
                    # RocketMQ fails in reading such a header, before it sees whatever was refused here.
                    answer = response(request, ResponseCode.SYSTEM_ERROR, f"the custom field <{name}> is null")
                self.tally.failed(request.code, answer.code)
            if self.topics.dirty or self.groups.dirty:
                answer = self._hold(request, peer, answer, waiting)
        return None if request.flag & FLAG_ONEWAY else answer

    def _handle_again(self, request: Command, peer: Peer) -> None:
        """What a request waited for, old records for example, may be there. Nothing was changed by it before: it begins anew."""
        self.tally.requests[request.code] -= 1
        answer = self.handle(request, peer)
        if answer is not None:
            peer.send(answer)

    def handle_excess(self, request: Command, peer: Peer) -> Command | None:
        """The answer to a request that finds too many waiting: sends are refused, everything else is served."""
        refuse = self._excess_handlers.get(request.code)
        if refuse is None:
            return self.handle(request, peer)
        if self._gate is not None:
            try:
                self._gate.admit(request, peer, self._led_to.get(request.code))
            except Denied as denied:
                return self._denied(request, peer, denied)
        return refuse(request, peer)

    def _denied(self, request: Command, peer: Peer, denied: Denied) -> Command | None:
        self.tally.failed(request.code, denied.code)
        tell_denied(request, peer, denied)
        answer = None if request.flag & FLAG_ONEWAY else response(request, denied.code, denied.remark)
        if not denied.wait_ms:
            return answer
        self.core.late_answers.send(peer, None if answer is None else partial(peer.send, answer), denied.wait_ms)
        return None

    def end_turn(self) -> None:
        """Have changed tables saved, write the log, answer what became safe, and arm what is due later."""
        if (self.topics.dirty or self.groups.dirty) and self._saving.has_new_changes():
            self._saving.begin()
        if self._records is not None:
            self._records.end_turn()
        self.store.commit()
        for ended in self._turn_ended:
            ended()
        now_ns = self.clock.monotonic_ns()
        self.statistics.end_turn(now_ns, self.clock.now_ms)
        for arm in self._arm:
            arm(now_ns)

    def peer_closed(self, peer: Peer) -> None:
        """The connection is gone: its held pulls are forgotten, its clients leave their groups."""
        for closed in self._peer_closed:
            closed(peer)

    def _arrival(self, entries: Sequence[Dispatched]) -> None:
        for arrived in self._arrived:
            arrived(entries)

    # --- time -------------------------------------------------------------------------------------------------------

    @property
    def next_tick_ns(self) -> int | None:
        """Monotonic time of the next periodic work; None while there is none."""
        return self.deadlines.next_ns

    def tick(self) -> None:
        """Do the periodic work that is due."""
        now_ns = self.clock.monotonic_ns()
        self.deadlines.run_due(now_ns)
        for arm in self._arm:
            arm(now_ns)

    def _hold(self, request: Command, peer: Peer, answer: Command | None, waiting: int) -> Command | None:
        """A table was changed: what the request is answered, or will be, waits until that is saved."""
        if not self._saving.has_new_changes():
            return answer
        if self.store.waiter_count > waiting:
            self.store.hold_answers(waiting, self._saving.until_saved())
        if answer is None:
            self._saving.begin()
            return None
        return self._saving.answer(request, peer, answer, refuses=False)

    def close(self) -> None:
        """Answer what is still held and save every table. The store and its worker are closed afterwards, by the owner.

        Raises `OSError` when a table could not be saved.
        """
        for room in having(self.rooms.all, "close"):
            room.close()
        if self._records is not None:
            self._records.end()
        self.store.commit()
        self._saving.finish()
        self.topics.save()
        self.groups.save()


def make_broker(
    settings: BrokerSettings,
    store: MessageStore,
    clock: Clock,
    facilities: Facilities,
    derived: DerivedState | None = None,
) -> Broker:
    """A broker that serves an open store, whose `derived` parts were recovered with it. It takes over the store's arrivals.

    Raises `StoreDamagedError` for an unusable table.
    """
    derived = derived if derived is not None else DerivedState()
    core = BrokerCore(settings, store, clock, facilities, derived.tables)
    return Broker(core, BrokerRooms(core, derived))


def merged(tables: Iterable[Mapping[RequestCode, RequestHandler]]) -> dict[int, RequestHandler]:
    """One table of all. ValueError for a code that two rooms answer, or that no broker serves by the table of requests."""
    handlers: dict[int, RequestHandler] = {}
    for table in tables:
        for code, handler in table.items():
            if int(code) in handlers:
                raise ValueError(f"two rooms answer request code {int(code)} ({code.name})")
            if RequestServer.BROKER not in REQUESTS[code].served_by:
                raise ValueError(f"the table of requests says that no broker serves {int(code)} ({code.name})")
            handlers[int(code)] = handler
    return handlers


def records_led_to(rooms: Iterable[Room]) -> dict[int, LedTo]:
    """What tells the topics that requests lead to, of all rooms. ValueError for a code whose row names no record."""
    found: dict[int, LedTo] = {}
    for room in rooms:
        for code, led_to in room.led_to().items():
            if not any(need.named_by is NamedBy.RECORD for need in REQUESTS[code].needs):
                raise ValueError(f"the row of {int(code)} ({code.name}) names no record")
            found[int(code)] = led_to
    return found


def _check_led_to(served: Iterable[int], led_to: Mapping[int, LedTo]) -> None:
    """ValueError for a code that is served and whose row names a record, where nothing tells which: nobody could be let through."""
    for code in served:
        row = REQUESTS[RequestCode(code)]
        if code not in led_to and any(need.named_by is NamedBy.RECORD for need in row.needs):
            raise ValueError(f"no room tells the topics that {code} ({row.code.name}) leads to")
