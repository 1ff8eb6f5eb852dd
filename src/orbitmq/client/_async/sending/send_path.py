"""The way of one producer's messages to the brokers: room, queue, attempts.

Rules of this file
1. Room is taken before the first attempt and given back when the send has ended, however it ends.
2. All attempts of a send share one time limit, one body and one unique id.
3. A message that belongs to one queue (an ordering key, an explicit queue) is attempted once: a repeat behind later messages
   would change their order, so it is the caller who decides. A message with a key that the program gave (`once`) is repeated. It goes
   to the broker to which its key leads, which alone knows whether it was sent before, and waits for one that is away.
4. After a failure that may have stored the message, an idempotent send goes to the same queue again, where the broker recognises
   it, until that is sure or, where the program allows it, for a time; any other goes to another broker. A failure that certainly stored
   nothing always allows another broker, but not to a message with a key that the program gave.
5. A broker that cannot remember more keys still gets the messages of producers that only wanted safe repeats; so does one when the
   properties of a message leave no room for what makes repeats recognisable.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.client._async.runtime import Event, log, monotonic_ms, sleep_ms, wait_event
from orbitmq.client._async.sending.broker_probes import BrokerProbes
from orbitmq.client._async.sending.receipt import SendReceipt, receipts
from orbitmq.client._async.sending.send_room import SendRoom
from orbitmq.client.answers import remote_error
from orbitmq.client.arguments import check_timeout_ms
from orbitmq.client.message import Once, OnceWithin, SendStatus
from orbitmq.client.options import ProducerOptions
from orbitmq.client.sending.known_queues import broker_of_key
from orbitmq.client.sending.outgoing import STORED_CODES, Outgoing, has_room, request_fields
from orbitmq.client.sending.queue_choice import RoundRobin, choose_by_key, elsewhere
from orbitmq.client.sending.send_attempts import NOBODY, Attempts, may_have_stored, may_help_elsewhere
from orbitmq.client.sending.slow_brokers import SlowBrokers
from orbitmq.client.sending.transient_scope import TransientScope, once_text, within_text
from orbitmq.errors import (
    ClientError,
    ConnectionLostError,
    MasterAwayError,
    MessageIllegalError,
    RemoteError,
    RequestTimeoutError,
)
from orbitmq.limits.client import AWAY_BROKER_MS_MAX, CLIENT_SEND_TEMPLATES_MAX
from orbitmq.limits.wire import PROPERTIES_BYTES_MAX
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.protocol.remoting.codes import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import Command, request
from orbitmq.protocol.remoting.send_request import SendRequest, SendTemplate

if TYPE_CHECKING:
    from orbitmq.client._async.parts import ClientContext


class _Plan(NamedTuple):
    """Where a message may go, and how a broker recognises its repeats.

    once: encoded properties, empty when repeats are not recognised. epoch: of the producer's own scope; None when the program counts
    itself. key: what the program gave as `once`; remembered_ms: how long it is, at most.
    """

    ordering_key: str | None
    queue: MessageQueue | None
    once: str = ""
    epoch: int | None = None
    key: str | None = None
    remembered_ms: int = 0

    @property
    def is_callers(self) -> bool:
        """The program gave a `Once` or an `OnceWithin`."""
        return self.key is not None

    @property
    def attempted_once(self) -> bool:
        return (self.ordering_key is not None or self.queue is not None) and not self.is_callers


class SendPath:
    """Sends for one producer. `selector` is the producer's own, or the default one."""

    def __init__(self, client: ClientContext, group: str, options: ProducerOptions) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._room = SendRoom(options.in_flight_max, options.in_flight_bytes_max)
        self._robin = RoundRobin()
        self._scope = TransientScope(os.urandom(9).hex()) if options.idempotent else None
        self._slow = SlowBrokers() if options.avoid_slow_brokers else None
        self._probes = None if self._slow is None else BrokerProbes(client, self._slow, f"producer {group}")
        self._templates: dict[str, SendTemplate] = {}

    async def close(self) -> None:
        if self._probes is not None:
            await self._probes.close()

    async def store(
        self,
        outgoing: Outgoing,
        *,
        ordering_key: str | None = None,
        queue: MessageQueue | None = None,
        once: Once | OnceWithin | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendReceipt]:
        """Until a broker has stored it: a receipt for each message. See `Producer.send` for the errors."""
        limit_ms = self.limit_ms(timeout_ms)
        started_ms = monotonic_ms()
        size = len(outgoing.body)
        if not self._room.enter_now(size):
            await self._room.enter(size, limit_ms)
        try:
            if once is not None:
                remembered_ms = AWAY_BROKER_MS_MAX
                if isinstance(once, OnceWithin):
                    remembered_ms = min(once.window_ms, AWAY_BROKER_MS_MAX)
                    text = within_text(outgoing.topic, once.scope, once.window_ms, once.key)
                else:
                    text = once_text(once.scope, once.epoch, once.key)
                if not has_room(outgoing.properties, text):
                    raise MessageIllegalError(
                        f"the properties leave no room for the {len(text.encode())} bytes of {once!r}; "
                        f"a record holds {PROPERTIES_BYTES_MAX}",
                        remedy="move the data into the body",
                    )
                plan = _Plan(ordering_key, queue, text, None, once.key, remembered_ms)
                return await self._attempts(outgoing, plan, started_ms, limit_ms)
            scope = self._scope
            if scope is None:
                return await self._attempts(outgoing, _Plan(ordering_key, queue), started_ms, limit_ms)
            epoch = scope.enter(started_ms)
            try:
                text = scope.text
                plan = _Plan(ordering_key, queue, text if has_room(outgoing.properties, text) else "", epoch)
                return await self._attempts(outgoing, plan, started_ms, limit_ms)
            finally:
                scope.leave(epoch)
        finally:
            self._room.leave(size)

    async def post(
        self, outgoing: Outgoing, ordering_key: str | None, queue: MessageQueue | None, timeout_ms: int | None
    ) -> None:
        """Hand it to a broker's connection and ask for no answer."""
        deadline_ms = monotonic_ms() + self.limit_ms(timeout_ms)
        target = queue or await self._choose(outgoing.topic, _Plan(ordering_key, None))
        address = await self._address(target)
        if outgoing.is_timed:
            left_ms = max(1, deadline_ms - monotonic_ms())
            await self._client.check_timed(address, target.broker_name, outgoing, left_ms)
        await self._client.network.post(
            address,
            RequestCode.SEND_MESSAGE_V2,
            self._fields(outgoing, target, ""),
            outgoing.body,
            timeout_ms=max(1, deadline_ms - monotonic_ms()),
        )

    async def queues(self, topic: str) -> Sequence[MessageQueue]:
        """Queues that can be sent to; `RouteNotFoundError` when there is none."""
        routes = self._client.routes
        route = routes.known_for_sending(topic)
        if route is None:
            route = await routes.for_sending(topic, self._options.topic_queues_count)
        return route.publish_queues

    def limit_ms(self, timeout_ms: int | None) -> int:
        """How long a send with this time limit may take. `ConfigurationError` for what is none."""
        if timeout_ms is None:
            return self._options.send_timeout_ms
        check_timeout_ms(timeout_ms)
        return timeout_ms

    # --- attempts

    async def _attempts(self, outgoing: Outgoing, plan: _Plan, started_ms: int, limit_ms: int) -> list[SendReceipt]:
        options = self._options
        attempts = Attempts(0 if plan.attempted_once else options.retries_count, limit_ms, options.attempt_timeout_ms)
        not_ok: list[SendReceipt] | None = None
        queue, once = plan.queue, plan.once
        unsure_ms: int | None = None
        """When it was first doubtful whether a broker has it; of a message with a key of the program, when its broker did not take it."""
        is_other_route = is_elsewhere = False
        while True:
            if unsure_ms is not None and self._goes_elsewhere(plan, monotonic_ms() - unsure_ms):
                queue = unsure_ms = None
                is_elsewhere = True
            other_route = self._client.routes.moved
            try:
                target = queue or await self._choose(outgoing.topic, plan, attempts.failed_brokers, is_elsewhere)
            except (ConnectionLostError, MasterAwayError) as error:
                if self._client.routes.some_topic() is None or not attempts.failed(NOBODY, error):
                    raise
                target, unsure_ms = None, unsure_ms or (monotonic_ms() if plan.is_callers else None)
            if attempts.count:
                name = NOBODY if target is None else target.broker_name
                pause_ms = attempts.pause_ms(name, monotonic_ms() - started_ms)
                if pause_ms is None:
                    break
                if pause_ms and (target is None or not is_other_route):
                    is_other_route = await self._pause(attempts, other_route, pause_ms)
                if target is None:
                    continue
            is_other_route = False
            assert target is not None
            left_ms = attempts.left_ms(monotonic_ms() - started_ms)
            if left_ms is None:
                break
            try:
                stored = await self._attempt(outgoing, target, once, left_ms, attempts)
            except ClientError as error:
                if once and not plan.is_callers and _is_refused_key(error) and not attempts.maybe_stored:
                    log.debug("sending to %s without safe repeats: %s", target, error)
                    once = ""  # nothing was stored, here or before; this attempt does not count
                    continue
                again = attempts.failed(target.broker_name, error)
                if again and once and (plan.is_callers or may_have_stored(error)):
                    queue = target if may_have_stored(error) else queue
                    unsure_ms = unsure_ms or monotonic_ms()
                    again = plan.is_callers or self._is_remembered(plan, monotonic_ms() - started_ms)
                if not again:
                    break
            else:
                self._client.routes.created(outgoing.topic)
                status = stored[0].send_status
                if status is SendStatus.SEND_OK or not options.retry_not_stored_ok:
                    return stored
                not_ok = stored
                if not attempts.failed(target.broker_name, ClientError(f"stored, but {status.name}"), again=True):
                    break
        if not_ok is not None:
            return not_ok
        failure = attempts.give_up(outgoing.topic, monotonic_ms() - started_ms)
        raise failure from (None if attempts.last is failure else attempts.last)

    async def _pause(self, attempts: Attempts, other_route: Event, pause_ms: int) -> bool:
        """Whether it ended early, with another route. Attempts that are counted are not spent on routes that say nothing yet."""
        if not attempts.is_counted:
            return await wait_event(other_route, pause_ms)
        await sleep_ms(pause_ms)
        return False

    def _goes_elsewhere(self, plan: _Plan, unsure_for_ms: int) -> bool:
        after_ms = self._options.elsewhere_after_ms
        return plan.queue is None and after_ms is not None and unsure_for_ms >= after_ms

    async def _attempt(
        self, outgoing: Outgoing, queue: MessageQueue, once: str, timeout_ms: int, attempts: Attempts
    ) -> list[SendReceipt]:
        began_ms = monotonic_ms() if self._slow is not None else 0
        network = self._client.network
        try:
            address = await self._address(queue)
            if not network.is_connected(address):
                dialled_ms = monotonic_ms()
                await network.connect(address, attempts.connect_ms(timeout_ms))
                timeout_ms = max(1, timeout_ms - (monotonic_ms() - dialled_ms))
            if outgoing.is_timed:
                started_ms = monotonic_ms()
                await self._client.check_timed(address, queue.broker_name, outgoing, timeout_ms)
                timeout_ms = max(1, timeout_ms - (monotonic_ms() - started_ms))
            answer = await network.exchange(address, self._request(outgoing, queue, once), timeout_ms)
            if answer.code not in STORED_CODES:
                raise remote_error(answer.code, answer.remark, address, f"sending to topic {outgoing.topic!r}")
        except ClientError as error:
            if self._slow is not None and self._probes is not None:
                now_ms = monotonic_ms()
                if may_help_elsewhere(error):
                    self._slow.failed(queue.broker_name, now_ms)
                    self._probes.needed()
                else:
                    self._slow.succeeded(queue.broker_name, now_ms - began_ms, now_ms)
            raise
        if self._slow is not None:
            now_ms = monotonic_ms()
            self._slow.succeeded(queue.broker_name, now_ms - began_ms, now_ms)
        return receipts(
            outgoing, queue, answer, attempts.next_number, self._client.timers if outgoing.is_timed else None
        )

    def _is_remembered(self, plan: _Plan, age_ms: int) -> bool:
        """Whether a broker still knows a send of this age."""
        return self._scope is None or plan.epoch is None or self._scope.may_repeat(plan.epoch, age_ms)

    # --- one request

    def _request(self, outgoing: Outgoing, queue: MessageQueue, once: str) -> Command | SendRequest:
        if not outgoing.is_plain or self._client.network.signs:
            code = RequestCode.SEND_BATCH_MESSAGE if outgoing.is_batch else RequestCode.SEND_MESSAGE_V2
            return request(code, self._fields(outgoing, queue, once), outgoing.body)
        template = self._templates.get(outgoing.topic)
        if template is None:
            if len(self._templates) >= CLIENT_SEND_TEMPLATES_MAX:
                self._templates.clear()
            template = SendTemplate(self._group, outgoing.topic, self._options.topic_queues_count)
            self._templates[outgoing.topic] = template
        return SendRequest(
            template,
            queue.queue_id,
            queue.broker_name,
            outgoing.properties + once,
            outgoing.body,
            outgoing.sys_flag,
            self._client.clock.now_ms(),
            outgoing.flag,
        )

    def _fields(self, outgoing: Outgoing, queue: MessageQueue, once: str) -> dict[str, str]:
        return request_fields(
            outgoing, queue, self._group, self._options.topic_queues_count, self._client.clock.now_ms(), once
        )

    async def _choose(
        self, topic: str, plan: _Plan, failed: Collection[str] = (), is_elsewhere: bool = False
    ) -> MessageQueue:
        """failed: brokers that did not take the message. is_elsewhere: the program wants no longer to wait for the one of its key."""
        queues = await self.queues(topic)
        if plan.key is not None:
            return self._queue_of_key(queues, plan, plan.key, failed if is_elsewhere else None)
        if plan.ordering_key is None:
            if self._slow is not None:
                queues = self._slow.preferred(queues, failed, monotonic_ms())
            elif failed:
                queues = elsewhere(queues, failed)
        return self._select(queues, plan.ordering_key)

    def _queue_of_key(
        self, queues: Sequence[MessageQueue], plan: _Plan, key: str, failed: Collection[str] | None
    ) -> MessageQueue:
        """Where the key of a `once` leads among the brokers that are known, also those that are away: `MasterAwayError` for one of these.
        failed: among those that are there, and of these rather to others."""
        routes = self._client.routes
        if failed is not None:
            known = elsewhere(queues, failed)
        else:
            known = routes.known_queues.with_those_away(queues[0].topic, queues, plan.remembered_ms, monotonic_ms())
        if plan.ordering_key or self._options.selector is not None:
            queue = self._select(known, plan.ordering_key or key)
        else:
            name = broker_of_key({each.broker_name for each in known}, key)
            queue = choose_by_key([each for each in known if each.broker_name == name], key)
        if known is not queues and queue not in queues:
            routes.awaited()
            raise MasterAwayError(
                f"broker {queue.broker_name} is away, to which key {key!r} leads: it alone knows whether that was sent to {queue.topic!r}",
                remedy="start it again; if it is gone for good, start this program anew, or have elsewhere_after_ms send the message to "
                "another broker, where it may be stored a second time",
            )
        return queue

    def _select(self, queues: Sequence[MessageQueue], key: str | None) -> MessageQueue:
        selector = self._options.selector
        if selector is None:
            return self._robin(queues, key)
        queue = selector(queues, key)
        if queue not in queues:
            raise ClientError(
                f"the selector returned {queue!r}, which is none of the {len(queues)} queues of {queues[0].topic!r} it was given",
                remedy="return one of them",
            )
        return queue

    async def _address(self, queue: MessageQueue) -> str:
        routes = self._client.routes
        address = routes.master(queue.broker_name, queue.topic)
        if address is None:
            try:
                await routes.refresh(queue.topic)
            except RequestTimeoutError as error:  # of a question to a name server: nothing of the message has left
                raise ConnectionLostError(str(error), request_sent=False) from error
            address = routes.master(queue.broker_name, queue.topic)
        if address is None:
            raise ConnectionLostError(
                f"broker {queue.broker_name} of topic {queue.topic!r} has no master address",
                request_sent=False,
                remedy="its master is not registered at the name servers; check that it runs",
            )
        return address


def _is_refused_key(error: ClientError) -> bool:
    """The broker stored nothing because it keeps no more keys, or considers our epoch past."""
    return isinstance(error, RemoteError) and error.code in (
        ResponseCode.IDEMPOTENCE_FULL,
        ResponseCode.STALE_EPOCH,
    )
