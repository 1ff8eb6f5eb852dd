"""Pulling: requests 11 and 361.

Rules of this file
1. Records leave as the bytes they are stored as; no object is made per record.
2. A pull that finds nothing is held once (`long_poll`), run again when it is released, and then answered whatever it
   finds.
3. Committing an offset with a pull, and recording where it ended, happen on the first run only.
4. A reset answers what is held of its group at once: a pull that waits for an offset beyond the target waits in vain.
5. Every answer with code 0, 19, 20 or 21 carries the whole response header: clients un-box it unseen.

Source: RocketMQ broker, pull path; remoting, PULL_MESSAGE.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import msgspec

from orbitmq.broker.clients import ClientRegistry
from orbitmq.broker.counting.statistics import Statistics
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.long_poll import LongPolls
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.refusal import Refusal, group_missing, topic_missing
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.topics import READ, TopicTable
from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.limits.broker import PULL_SUSPEND_MS_MAX
from orbitmq.limits.wire import FILTER_CACHED_CHARS_MAX, FILTERS_CACHED_MAX
from orbitmq.protocol.filters import TagFilter
from orbitmq.protocol.names import is_system_group
from orbitmq.protocol.remoting.bodies import ConsumeType
from orbitmq.protocol.remoting.commands import RequestCode, ResponseCode
from orbitmq.protocol.remoting.frame import FLAG_RESPONSE, Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.versions import OUR_VERSION, Language
from orbitmq.store.reading import GetResult, GetStatus
from orbitmq.store.store import MessageStore

COMMIT_OFFSET, SUSPEND, SUBSCRIPTION = 1, 2, 4
"""Bits of a pull request's sysFlag."""

FORBIDDEN_BROKER, FORBIDDEN_GROUP, FORBIDDEN_TOPIC, FORBIDDEN_BROADCAST, FORBIDDEN_SUBSCRIPTION = (
    "1",
    "2",
    "3",
    "4",
    "5",
)
"""Values of the response field `forbiddenType`."""

TAG = "TAG"

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
    """One pull request with what its checks found out. `accepts` is the tag test, None for everything."""

    peer: Peer
    opaque: int
    group: str
    topic: str
    queue_id: int
    offset: int
    max_count: int
    max_bytes: int
    accepts: Callable[[int], bool] | None
    topic_sys_flag: int
    group_sys_flag: int


class PullProcessor:
    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientRegistry,
        store: MessageStore,
        clock: Clock,
        statistics: Statistics,
        *,
        count_max: int,
        bytes_max: int,
    ) -> None:
        """`count_max` and `bytes_max` bound one answer, whatever the client asks for; one message is always given."""
        self.held: LongPolls[Pull] = LongPolls(self._run_again)
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._store = store
        self._clock = clock
        self._statistics = statistics
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._wait_limit_ns = settings.wait_time_ms_in_pull_queue * 1_000_000

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
        target = self._offsets.take_reset(pull.group, pull.topic, pull.queue_id)
        if target is not None:
            return self._answer_reset(pull, target)
        if sys_flag & COMMIT_OFFSET:
            self._offsets.commit(pull.group, pull.topic, pull.queue_id, command.integer("commitOffset"))
        result = self._get(pull)
        self._offsets.pulled(pull.group, pull.topic, pull.queue_id, result.next_offset)
        if result.status is GetStatus.FOUND:
            self._deliver(pull, result)
            return None
        code = _code(result.status, pull.offset)
        if code is ResponseCode.PULL_NOT_FOUND and sys_flag & SUSPEND:
            settings = self._settings
            wait_ms = settings.short_polling_time_ms
            if settings.long_polling_enable:
                wait_ms = min(max(command.integer("suspendTimeoutMillis"), 0), PULL_SUSPEND_MS_MAX)
            if self.held.hold(
                pull, pull.topic, pull.queue_id, pull.offset,
                now_ns=now_ns, wait_ms=wait_ms, accepts=pull.accepts, owner=peer,
            ):  # fmt: skip
                return None
        self._statistics.count_missed()
        return self._answer(pull, code, result, result.status.name)

    def arrived(self, topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
        """A message became visible; see `LongPolls.arrived`."""
        if self._settings.long_polling_enable:
            self.held.arrived(topic, queue_id, next_offset, tags_code)

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
        return self._store.get(pull.topic, pull.queue_id, pull.offset, pull.max_count, pull.max_bytes, pull.accepts)

    def _run_again(self, pull: Pull) -> None:
        """The second and last run of a pull that was held."""
        result = self._get(pull)
        if result.status is GetStatus.FOUND:
            self._deliver(pull, result)
            return
        self._statistics.count_missed()
        pull.peer.send(self._answer(pull, _code(result.status, pull.offset), result, result.status.name))

    def _deliver(self, pull: Pull, result: GetResult) -> None:
        """Answer with records: at once when they are warm, after the worker has read and verified them when not."""
        if result.cold:
            self._store.read_cold(result, lambda read: self._deliver_read(pull, read, cold=True))
        else:
            self._deliver_read(pull, result)

    def _deliver_read(self, pull: Pull, result: GetResult, *, cold: bool = False) -> None:
        self._statistics.pulled(
            pull.topic, pull.group, result.count, result.bytes_total, self._clock.monotonic_ns(), cold=cold
        )
        answer = self._answer(pull, _code(result.status, pull.offset), result, result.status.name)
        pull.peer.send_parts(answer, result.records)

    def _answer(self, pull: Pull, code: ResponseCode, result: GetResult, remark: str) -> Command:
        return _answer(pull, code, remark, result.next_offset, result.min_offset, result.max_offset)

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
        accepts = self._accepts(command, group_name, topic, group.consume_broadcast_enable)
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
            accepts,
            config.topic_sys_flag,
            group.group_sys_flag,
        )

    def _accepts(
        self, command: Command, group_name: str, topic: str, broadcast_allowed: bool
    ) -> Callable[[int], bool] | None:
        """The tag test of this pull: from the request itself, or from the group's registered subscription."""
        fields = command.fields
        if command.int32("sysFlag") & SUBSCRIPTION:
            expression, kind = fields.get("subscription"), fields.get("expressionType")
            class_filter = False
        else:
            group = self._clients.consumer(group_name)
            if group is None:
                raise Refusal(
                    ResponseCode.SUBSCRIPTION_NOT_EXIST,
                    f"no client of group {group_name!r} is registered; send a heartbeat first",
                    {},
                )
            if not broadcast_allowed and group.is_broadcasting:
                raise _forbidden(FORBIDDEN_BROADCAST, f"group {group_name!r} may not broadcast")
            if self._groups.reading_forbidden(group_name, topic):
                raise _forbidden(FORBIDDEN_SUBSCRIPTION, f"group {group_name!r} may not read topic {topic!r}")
            subscription = group.subscriptions.get(topic)
            if subscription is None:
                raise Refusal(
                    ResponseCode.SUBSCRIPTION_NOT_EXIST, f"group {group_name!r} does not subscribe to {topic!r}", {}
                )
            if subscription.sub_version < command.integer("subVersion"):
                raise Refusal(
                    ResponseCode.SUBSCRIPTION_NOT_LATEST,
                    f"the subscription of group {group_name!r} to {topic!r} known here is older than the client's; "
                    "its next heartbeat brings the new one",
                    {},
                )
            expression, kind = subscription.sub_string, subscription.expression_type
            class_filter = subscription.class_filter_mode
        if class_filter:
            return None
        if kind and kind != TAG:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"filtering by {kind} is not enabled on this broker (enablePropertyFilter=false); use tags",
                {},
            )
        try:
            return _tag_filter(expression or "").code_test
        except ProtocolError as error:
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error), {}) from error

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


def _tag_filter(expression: str) -> TagFilter:
    return _short_filter(expression) if len(expression) <= FILTER_CACHED_CHARS_MAX else TagFilter.parse(expression)


@lru_cache(maxsize=FILTERS_CACHED_MAX)
def _short_filter(expression: str) -> TagFilter:
    return TagFilter.parse(expression)


def _code(status: GetStatus, offset: int) -> ResponseCode:
    code = CODES.get(status)
    if code is None:  # an empty or unknown queue
        return ResponseCode.PULL_OFFSET_MOVED if offset != 0 else ResponseCode.PULL_NOT_FOUND
    return code


def _answer(pull: Pull, code: ResponseCode, remark: str, next_offset: int, min_offset: int, max_offset: int) -> Command:
    return Command(
        code,
        pull.opaque,
        FLAG_RESPONSE,
        Language.JAVA,
        OUR_VERSION,
        remark,
        {
            "suggestWhichBrokerId": "0",
            "groupSysFlag": str(pull.group_sys_flag),
            "nextBeginOffset": str(next_offset),
            "maxOffset": str(max_offset),
            "minOffset": str(min_offset),
            "topicSysFlag": str(pull.topic_sys_flag),
        },
        True,
    )


def _forbidden(kind: str, remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": kind})
