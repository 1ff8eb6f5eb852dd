"""Pulling: requests 11 and 361.

Rules of this file
1. Records leave as the bytes they are stored as; no object is made per record.
2. A pull that finds nothing is held once (`long_poll`), run again when it is released, and then answered whatever it
   finds.
3. Committing an offset with a pull, and recording where it ended, happen on the first run only.
4. A reset answers what is held of its group at once: a pull that waits for an offset beyond the target waits in vain.
5. Messages that cannot be read are an error that the client hears of, with the reason; its offset stays where it is.
6. Every answer with code 0, 19, 20 or 21 carries the whole response header: clients un-box it unseen.

Source: RocketMQ broker, pull path; remoting, PULL_MESSAGE.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from orbitmq.broker.choosing.wanted import ArrivedMessage, WantedMessages, choose, get_wanted
from orbitmq.broker.cold_pulls import ColdPulls
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.long_poll import LongPolls
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.topics import READ
from orbitmq.errors import JobRefusedError
from orbitmq.limits.broker import PULL_SUSPEND_MS_MAX, SLAVE_PULL_PAUSE_MS, SLAVE_PULLS_MAX
from orbitmq.protocol.names import is_system_group
from orbitmq.protocol.records import PHYSICAL_OFFSET_AT
from orbitmq.protocol.remoting.bodies import ConsumeType
from orbitmq.protocol.remoting.codes import NOT_READ
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import FLAG_RESPONSE, Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.versions import OUR_VERSION, Language
from orbitmq.store.dispatch import Dispatched
from orbitmq.store.reading import GetResult, GetStatus
from orbitmq.store.reads import ReadProblem
from orbitmq.units import NS_PER_MS

logger = logging.getLogger("orbitmq.broker")

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4
"""Bits of a pull request's sysFlag."""

FORBIDDEN_BROKER, FORBIDDEN_GROUP, FORBIDDEN_TOPIC = "1", "2", "3"
"""Values of the response field `forbiddenType`; those of subscriptions are in `choosing.subscriptions`."""

MASTER = "0"
"""Id of the broker to pull from next."""


HELD = "held pulls"
"""Name of the wake-up that ends pulls which were held long enough."""

REFUSED = "pulls that a slave refuses"
"""Name of the wake-up that answers them."""

CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""Without the two statuses of an empty queue, whose code depends on the offset asked for."""


class Pull(msgspec.Struct, gc=False):
    """One pull request with what its checks found out."""

    peer: Peer
    opaque: int
    group: str
    topic: str
    queue_id: int
    offset: int
    max_count: int
    max_bytes: int
    wanted: WantedMessages
    topic_sys_flag: int
    group_sys_flag: int


class PullProcessor(Room):
    def __init__(self, core: BrokerCore) -> None:
        store, settings = core.store, core.settings
        self.held: LongPolls[Pull] = LongPolls(self._run_again)
        self.cold: ColdPulls[Pull] = ColdPulls(self._run_again)
        self.is_withdrawn: Callable[[], bool] = lambda: False
        """Whether this log may be another one than that of its group: then nothing of it is served."""
        self._settings = settings
        self._topics = core.topics
        self._groups = core.groups
        self._offsets = core.offsets
        self._survivors = core.survivors
        self._clients = core.clients
        self._subscriptions = core.subscriptions
        self._store = store
        self._clock = core.clock
        self._statistics = core.statistics
        self._core = core
        self._deadlines = core.deadlines
        # Bounds of one answer, whatever the client asks for; one message is always given.
        self._count_max = store.settings.max_transfer_count_on_message_in_memory
        self._bytes_max = store.settings.max_transfer_bytes_on_message_in_memory
        self._wait_limit_ns = settings.wait_time_ms_in_pull_queue * 1_000_000
        core.deadlines.define(HELD, self._check_held)
        self._refused: deque[tuple[int, Pull]] = deque()
        """Those that are refused, and when they are told so."""
        core.deadlines.define(REFUSED, self._refuse_due)

    # --- as a room of the broker --------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def arm(self, now_ns: int) -> None:
        self._deadlines.move(HELD, self.held.next_at_ns())

    def peer_closed(self, peer: Peer) -> None:
        self.held.drop_owner(peer)
        self.cold.drop(peer)

    def facts(self) -> Mapping[str, object]:
        return {"orbitmqPullsNotHeld": self.held.refused_count}

    def close(self) -> None:
        self.held.release_all()

    def _check_held(self) -> None:
        self.held.check(self._clock.monotonic_ns(), self._store.max_offset)

    def arrived(self, entries: Sequence[Dispatched]) -> None:
        if not len(self.held):
            return
        waited_for = self.held.queues
        for entry in entries:
            if (entry.topic, entry.queue_id) in waited_for and entry.has_queue_unit:
                message = ArrivedMessage(entry.tags_code, entry.properties)
                self._arrived_in(entry.topic, entry.queue_id, entry.queue_offset + 1, message)

    # --- requests -----------------------------------------------------------------------------------------------------

    def pull(self, command: Command, peer: Peer) -> Command | None:
        now_ns = self._clock.monotonic_ns()
        waited_ns = now_ns - peer.received_ns
        if waited_ns > self._wait_limit_ns and self._settings.broker_fast_failure_enable:
            self._statistics.busy_count += 1
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"[TIMEOUT_CLEAN_QUEUE]broker busy: the pull waited {waited_ns // 1_000_000} ms",
            )
        pull = self._check(command, peer)
        sys_flag = command.int32("sysFlag")
        if self._store.is_copy:
            if not self._settings.slave_read_enable or self.is_withdrawn():
                return self._refuse_later(pull, now_ns)
            sys_flag &= ~COMMIT_OFFSET
        target = self._offsets.take_reset(pull.group, pull.topic, pull.queue_id)
        if target is not None:
            self._survivors.was_reset(pull.group, pull.topic, pull.queue_id, peer)
        else:
            target = self._survivors.pulled(pull.group, pull.topic, pull.queue_id, pull.offset, peer)
        if target is not None:
            return self._answer_reset(pull, target)
        if sys_flag & COMMIT_OFFSET:
            self._offsets.commit(pull.group, pull.topic, pull.queue_id, command.integer("commitOffset"))
        try:
            result = self._get(pull)
        except OSError as error:
            return self._answer_unread(pull, error)
        if self._is_elsewhere(pull, result):
            return self._refuse_later(pull, now_ns)
        self._offsets.pulled(pull.group, pull.topic, pull.queue_id, result.next_offset)
        if result.status is GetStatus.FOUND:
            self._deliver(pull, result)
            return None
        if sys_flag & SUSPEND and _code(result.status, pull.offset) is ResponseCode.PULL_NOT_FOUND:
            settings = self._settings
            wait_ms = settings.short_polling_time_ms
            if settings.long_polling_enable:
                wait_ms = min(max(command.integer("suspendTimeoutMillis"), 0), PULL_SUSPEND_MS_MAX)
            if self.held.hold(
                pull, pull.topic, pull.queue_id, pull.offset,
                now_ns=now_ns, wait_ms=wait_ms, wanted=pull.wanted, owner=peer,
            ):  # fmt: skip
                return None
        return self._answer_missed(pull, result)

    def _refuse_later(self, pull: Pull, now_ns: int) -> Command | None:
        """A slave serves no pulls, or not this one."""
        if len(self._refused) >= SLAVE_PULLS_MAX:
            return _not_read(pull)
        self._refused.append((now_ns + SLAVE_PULL_PAUSE_MS * NS_PER_MS, pull))
        self._deadlines.arm(REFUSED, self._refused[0][0])
        return None

    def _refuse_due(self) -> None:
        refused, now_ns = self._refused, self._clock.monotonic_ns()
        while refused and refused[0][0] <= now_ns:
            _, pull = refused.popleft()
            pull.peer.send(_not_read(pull))
        if refused:
            self._deadlines.arm(REFUSED, refused[0][0])

    def _arrived_in(self, topic: str, queue_id: int, next_offset: int, message: ArrivedMessage) -> None:
        """A message became visible; see `LongPolls.arrived`."""
        if self._settings.long_polling_enable:
            self.held.arrived(topic, queue_id, next_offset, message)

    def wake_reset(self, group: str, topic: str, queue_id: int) -> None:
        """Hand a pending reset of this queue to the group's held pulls. Nothing is held: the next pull takes it.

        All of them are told, for one may belong to a member that has lost the queue since.
        """
        pulls = self.held.withdraw(topic, queue_id, lambda pull: pull.group == group)
        target = self._offsets.take_reset(group, topic, queue_id) if pulls else None
        if target is not None:
            for pull in pulls:
                pull.peer.send(self._answer_reset(pull, target))
            return
        for pull in pulls:
            self._run_again(pull)

    # --- running ----------------------------------------------------------------------------------------------------

    def _get(self, pull: Pull) -> GetResult:
        return get_wanted(
            self._store, pull.topic, pull.queue_id, pull.offset, pull.max_count, pull.max_bytes, pull.wanted
        )

    def _run_again(self, pull: Pull) -> None:
        """A later run of a pull that was held, or waited to be read. Raises nothing: whoever let it go has others to let go."""
        try:
            self._answer_again(pull)
        except Exception as error:
            self._answer_failed(pull, error)

    def _answer_again(self, pull: Pull) -> None:
        """When its connection takes answers."""
        if not pull.peer.writable and self.cold.wait(pull):
            return
        try:
            result = self._get(pull)
        except OSError as error:
            pull.peer.send(self._answer_unread(pull, error))
            return
        if result.status is GetStatus.FOUND:
            self._deliver(pull, result)
            return
        pull.peer.send(self._answer_missed(pull, result))

    def _deliver(self, pull: Pull, result: GetResult) -> None:
        """Answer with records: at once when they are warm, after the worker has read and verified them when not."""
        if not result.cold:
            self._deliver_read(pull, result)
        elif self.cold.begin(pull.peer):
            self._store.read_cold(result, lambda read: self._deliver_cold(pull, read))
        elif not self.cold.wait(pull):
            self._statistics.busy_count += 1
            remark = "[PCBUSY_CLEAN_QUEUE]broker busy: too many pulls wait for old messages"
            pull.peer.send(_problem(pull, ResponseCode.SYSTEM_BUSY, remark))

    def _deliver_cold(self, pull: Pull, read: GetResult | ReadProblem) -> None:
        """What the worker has read, or why it has not. Raises nothing."""
        try:
            self._answer_cold(pull, read)
        except Exception as error:
            self._answer_failed(pull, error)
        finally:
            self.cold.end(pull.peer)

    def _answer_cold(self, pull: Pull, read: GetResult | ReadProblem) -> None:
        if isinstance(read, OSError | JobRefusedError):
            pull.peer.send(self._answer_unread(pull, read))
            return
        result = choose(read, pull.max_count, pull.max_bytes, pull.wanted)
        if result.status is GetStatus.FOUND:
            self._deliver_read(pull, result, cold=True)
        else:
            pull.peer.send(self._answer_missed(pull, result))

    def _answer_failed(self, pull: Pull, error: Exception) -> None:
        """A defect: its pull is answered, and harms no other."""
        self._statistics.failed_handler_count += 1
        logger.error("a pull of %s from %s failed", pull.topic, pull.peer.address, exc_info=error)
        pull.peer.send(_problem(pull, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"))

    def _answer_unread(self, pull: Pull, error: ReadProblem) -> Command:
        """Nothing is passed over: the client is told, and asks for the same messages again."""
        where = f"{pull.topic}/{pull.queue_id} cannot be read from offset {pull.offset} on"
        code = ResponseCode.SYSTEM_ERROR
        if isinstance(error, JobRefusedError):
            self._statistics.busy_count += 1
            code = ResponseCode.SYSTEM_BUSY
        else:
            logger.error("%s: %s", where, error)
        return _problem(pull, code, f"{where}: {error}")

    def _deliver_read(self, pull: Pull, result: GetResult, *, cold: bool = False) -> None:
        self._statistics.pulled(
            pull.topic, pull.group, result.count, result.bytes_total, self._clock.monotonic_ns(), cold=cold
        )
        suggested = self._suggested(pull, result) if self._settings.slave_read_enable else MASTER
        pull.peer.send_parts(_answer_of(pull, result, suggested), result.records)

    def _suggested(self, pull: Pull, result: GetResult) -> str:
        """Which broker of the group to pull from next: another one where what is unread is more than lies in memory here."""
        group = self._groups.get(pull.group)
        if group is None:
            return MASTER
        first = int.from_bytes(result.records[0][PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big")
        is_old = self._store.log.written_end - first > self._core.young_bytes
        return str(group.which_broker_when_consume_slowly if is_old else group.broker_id)

    def _is_elsewhere(self, pull: Pull, result: GetResult) -> bool:
        """Whether this is a copy whose queue is not where the consumer stands: it read on at whoever has more, and is not taken back."""
        return self._store.is_copy and _code(result.status, pull.offset) is ResponseCode.PULL_OFFSET_MOVED

    def _answer_missed(self, pull: Pull, result: GetResult) -> Command:
        self._statistics.count_missed()
        if self._is_elsewhere(pull, result):
            return _not_read(pull)
        return _answer_of(pull, result)

    def _answer_reset(self, pull: Pull, target: int) -> Command:
        store = self._store
        return _answer(
            pull,
            ResponseCode.PULL_OFFSET_MOVED,
            "OFFSET_RESET",
            target,
            store.min_offset(pull.topic, pull.queue_id),
            store.max_offset(pull.topic, pull.queue_id),
        )

    # --- checks, in the protocol's order ----------------------------------------------------------------------------

    def _check(self, command: Command, peer: Peer) -> Pull:
        settings = self._settings
        fields = command.fields
        group_name, topic = fields.get("consumerGroup", ""), fields.get("topic", "")
        if not settings.broker_permission & READ:
            raise _forbidden(
                FORBIDDEN_BROKER,
                f"broker {settings.broker_name!r} cannot be read (brokerPermission={settings.broker_permission})",
            )
        if command.code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull_message_enable:
            raise _forbidden(FORBIDDEN_BROKER, "lite pull is switched off on this broker (litePullMessageEnable=false)")
        group = self._groups.get(group_name)
        if group is None:
            raise group_missing(group_name)
        if not group.consume_enable:
            raise _forbidden(FORBIDDEN_GROUP, f"group {group_name!r} may not consume (consumeEnable=false)")
        config = self._topics.get(topic)
        if config is None:
            raise topic_missing(topic)
        if not config.perm & READ:
            raise _forbidden(FORBIDDEN_TOPIC, f"topic {topic!r} cannot be read (perm={config.perm})")
        queue_id = command.int32("queueId")
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queue {queue_id} of topic {topic!r} does not exist: it has {config.read_queue_nums} read queues",
                {},
            )
        if command.int32("sysFlag") & SUBSCRIPTION:
            wanted = self._subscriptions.wanted(topic, fields.get("subscription"), fields.get("expressionType"))
        else:
            wanted = self._subscriptions.registered(group, topic, command.integer("subVersion"))
        wanted = self._subscriptions.of_retries(group_name, topic, wanted)
        if settings.reject_pull_consumer_enable:
            self._check_registered(group_name, peer)
        max_bytes = command.int32("maxMsgBytes")
        return Pull(
            peer,
            command.opaque,
            group_name,
            topic,
            queue_id,
            command.integer("queueOffset"),
            min(max(command.int32("maxMsgNums"), 1), self._count_max),
            min(max_bytes, self._bytes_max) if max_bytes > 0 else self._bytes_max,
            wanted,
            config.topic_sys_flag,
            group.group_sys_flag,
        )

    def _check_registered(self, group_name: str, peer: Peer) -> None:
        if is_system_group(group_name):
            return
        group = self._clients.consumer(group_name)
        if group is None or (group.consume_type is ConsumeType.CONSUME_ACTIVELY and peer not in group.members):
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"this connection is not registered in group {group_name!r} (rejectPullConsumerEnable=true)",
                {},
            )


def _code(status: GetStatus, offset: int) -> ResponseCode:
    code = CODES.get(status)
    if code is None:  # an empty or unknown queue
        return ResponseCode.PULL_OFFSET_MOVED if offset != 0 else ResponseCode.PULL_NOT_FOUND
    return code


def _not_read(pull: Pull) -> Command:
    """The consumer asks another broker, and stays where it is."""
    return _answer(pull, ResponseCode.PULL_RETRY_IMMEDIATELY, NOT_READ, pull.offset, 0, 0)


def _answer(
    pull: Pull,
    code: ResponseCode,
    remark: str,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    suggested: str = MASTER,
) -> Command:
    return Command(
        code,
        pull.opaque,
        FLAG_RESPONSE,
        Language.JAVA,
        OUR_VERSION,
        remark,
        {
            "suggestWhichBrokerId": suggested,
            "groupSysFlag": str(pull.group_sys_flag),
            "nextBeginOffset": str(next_offset),
            "maxOffset": str(max_offset),
            "minOffset": str(min_offset),
            "topicSysFlag": str(pull.topic_sys_flag),
        },
        True,
    )


def _answer_of(pull: Pull, result: GetResult, suggested: str = MASTER) -> Command:
    code = _code(result.status, pull.offset)
    return _answer(pull, code, result.status.name, result.next_offset, result.min_offset, result.max_offset, suggested)


def _problem(pull: Pull, code: ResponseCode, remark: str) -> Command:
    return Command(code, pull.opaque, FLAG_RESPONSE, Language.JAVA, OUR_VERSION, remark)


def _forbidden(kind: str, remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": kind})
