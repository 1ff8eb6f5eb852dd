"""The tables of a master of RocketMQ, at a broker that copies its log: they are not in that log, so the master is asked for them.

    answers of the master -> take(table, body) -> this broker's tables and their files
                          -> progress held    -> log_is_at(end) -> offsets, delay levels, timers

Rules of this file
1. Each table stands for itself: a body that cannot be read, or is beyond a bound, changes nothing, and raises ProtocolError.
2. A table is compared entry by entry: what is the same stays as it is, so no topic is unknown for a moment.
3. What a master says of its progress counts when this log holds everything that the master's log held then: a copy that takes over
   earlier repeats, it does not skip.
4. An offset goes back only where the master has said another one before: where a group was reset, and not where its consumers read here
   while the master was away. One that the master has dropped goes.

(Replication 4.)
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from orbitmq.broker.assignment.modes import RequestModeTable
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.offsets import SEPARATOR, OffsetTable
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.errors import ProtocolError
from orbitmq.limits.broker import GROUPS_MAX, OFFSET_QUEUES_MAX, QUEUES_PER_TOPIC_MAX, REQUEST_MODES_MAX, TOPICS_MAX
from orbitmq.limits.store import RAW_TOPIC_BYTES_MAX
from orbitmq.protocol.names import BUILT_IN_GROUPS
from orbitmq.protocol.remoting.bodies import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    MessageRequestModes,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigWrapper,
)
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.frame import Buffer
from orbitmq.timing.due_time import slot_time
from orbitmq.timing.levels.release import LevelRelease
from orbitmq.timing.rocketmq.checkpoint import WIRE_BYTES, TimerCheckpoint
from orbitmq.timing.rocketmq.led import LedByRocketMQ
from orbitmq.timing.timers.timers import Timers

_BUILT_IN: Final = frozenset(group.name for group in BUILT_IN_GROUPS)


class MastersTable(enum.Enum):
    """What a master is asked for. The value is the code of the request."""

    OFFSETS = RequestCode.GET_ALL_CONSUMER_OFFSET
    DELAY_LEVELS = RequestCode.GET_ALL_DELAY_OFFSET
    TIMERS = RequestCode.GET_TIMER_CHECK_POINT
    TOPICS = RequestCode.GET_ALL_TOPIC_CONFIG
    GROUPS = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    REQUEST_MODES = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE


PROGRESS: Final = (MastersTable.OFFSETS, MastersTable.DELAY_LEVELS, MastersTable.TIMERS)
"""What counts only with the log up to where it was said; asked for before the others, and before where the master's log ends."""

CONTENT: Final = (MastersTable.TOPICS, MastersTable.GROUPS, MastersTable.REQUEST_MODES)


class _Progress:
    """What a master said of its progress, and is not brought in yet."""

    def __init__(self) -> None:
        self.offsets: ConsumerOffsetTable | None = None
        self.levels: DelayOffsetTable | None = None
        self.timers: TimerCheckpoint | None = None


class CopiedTables:
    """Of one broker that copies a log. `modes` are those of its room, `led` remembers that a master of RocketMQ has led it."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        modes: RequestModeTable,
        levels: LevelRelease,
        timers: Timers | None,
        led: LedByRocketMQ,
        clock: Clock,
        timer_precision_ms: int,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._modes = modes
        self._levels = levels
        self._timers = timers
        self._led = led
        self._clock = clock
        self._precision_ms = timer_precision_ms
        self._said: dict[str, dict[int, int]] = {}
        """The offsets of the master, as last brought in."""
        self._progress = _Progress()
        self._needed: int | None = None
        """Where the log has to be for it; None while that is not known."""

    # --- answers ------------------------------------------------------------------------------------------------------

    def take(self, table: MastersTable, body: Buffer) -> None:
        """A master of RocketMQ answered this. Raises ProtocolError, which changes nothing; OSError."""
        match table:
            case MastersTable.OFFSETS:
                self._progress.offsets = _checked_offsets(ConsumerOffsetTable.decode(body))
            case MastersTable.DELAY_LEVELS:
                self._progress.levels = DelayOffsetTable.decode(body)
            case MastersTable.TIMERS:
                if len(body) != WIRE_BYTES:
                    raise ProtocolError(f"a timer checkpoint has {WIRE_BYTES} bytes, not {len(body)}")
                self._progress.timers = TimerCheckpoint.decode(bytes(body))
            case MastersTable.TOPICS:
                self._take_topics(TopicConfigWrapper.decode(body))
            case MastersTable.GROUPS:
                self._take_groups(SubscriptionGroupWrapper.decode(body))
            case MastersTable.REQUEST_MODES:
                self._take_modes(MessageRequestModes.decode(body))

    def _take_topics(self, told: TopicConfigWrapper) -> None:
        own = self._topics
        if told.data_version == own.version:
            return
        _bounded("topics", len(told.topic_config_table), TOPICS_MAX)
        wanted: dict[str, TopicConfig] = {}
        for name, config in told.topic_config_table.items():
            _check_name("topic", name)
            queues = (config.read_queue_nums, config.write_queue_nums)
            if not all(0 <= count <= QUEUES_PER_TOPIC_MAX for count in queues) or config.topic_name not in ("", name):
                raise ProtocolError(
                    f"topic {name!r} with {queues[0]} and {queues[1]} queues, called {config.topic_name!r}"
                )
            wanted[name] = config if config.topic_name else msgspec.structs.replace(config, topic_name=name)
        gone = [name for name in own.names() if name not in wanted and not own.is_system(name)]
        changed = {name: msgspec.json.encode(config) for name, config in wanted.items() if own.get(name) != config}
        own.take({**changed, **dict.fromkeys(gone)}, told.data_version)

    def _take_groups(self, told: SubscriptionGroupWrapper) -> None:
        own = self._groups
        if told.data_version == own.version:
            return
        _bounded("groups", len(told.subscription_group_table), GROUPS_MAX)
        for name in (*told.subscription_group_table, *told.forbidden_table):
            _check_name("group", name)
        values = own.values_of(told)
        gone = [name for name in own.recorded_keys() if name not in values and name not in _BUILT_IN]
        changed = {name: value for name, value in values.items() if own.differs(name, value)}
        own.take({**changed, **dict.fromkeys(gone)}, told.data_version)

    def _take_modes(self, told: MessageRequestModes) -> None:
        """This table has no version."""
        own = self._modes
        values = {
            f"{topic}{SEPARATOR}{group}": mode.encode()
            for topic, groups in told.message_request_mode_map.items()
            for group, mode in groups.items()
        }
        _bounded("request modes", len(values), REQUEST_MODES_MAX)
        gone = [key for key in own.recorded_keys() if key not in values]
        changed = {key: value for key, value in values.items() if own.differs(key, value)}
        if changed or gone:
            own.take({**changed, **dict.fromkeys(gone)}, None)

    # --- progress -----------------------------------------------------------------------------------------------------

    @property
    def waits_for_log(self) -> bool:
        """Whether progress is known that the log has not come to yet."""
        return self._needed is not None

    def progress_said_at(self, log_end: int) -> None:
        """The master's log ended there after it had said how far it is."""
        self._needed = log_end

    def forget_progress(self) -> None:
        """Another master is asked from now on, or the answers are not whole."""
        self._progress, self._needed = _Progress(), None

    def log_is_at(self, confirmed_end: int) -> bool:
        """This log is applied up to there; whether messages that were pending are delivered by what the master said. Raises OSError."""
        if self._needed is None or confirmed_end < self._needed:
            return False
        progress = self._progress
        self.forget_progress()
        self._led.note()
        if progress.offsets is not None:
            self._take_offsets(progress.offsets)
        count = 0
        if progress.levels is not None:
            count += self._levels.delivered_elsewhere(progress.levels.offset_table)
        timers, checkpoint = self._timers, progress.timers
        if timers is not None and checkpoint is not None:
            until_ms = checkpoint.last_read_time_ms
            count += timers.delivered_elsewhere(
                unit
                for unit in timers.due_before(min(until_ms, self._clock.now_ms()) + 1)
                if unit[0] < checkpoint.unlinked_from and slot_time(unit[2], self._precision_ms) < until_ms
            )
        return count > 0

    def _take_offsets(self, told: ConsumerOffsetTable) -> None:
        own, values = self._offsets, dict[str, bytes | None]()
        for key, queues in told.offset_table.items():
            topic, _, group = key.partition(SEPARATOR)
            known, said = own.queues(group, topic), self._said.get(key, {})
            merged = {
                **known,
                **{queue: _merged(known.get(queue), at, said.get(queue)) for queue, at in queues.items()},
            }
            for queue in said:
                if queue not in queues:
                    merged.pop(queue, None)
            if merged != known:
                values[key] = msgspec.json.encode(merged)
        values |= {key: None for key in self._said if key not in told.offset_table}
        self._said = told.offset_table
        if values:
            own.take(values, told.data_version)


def _merged(known: int | None, told: int, said: int | None) -> int:
    return known if known is not None and known > told and said in (None, told) else told


def _checked_offsets(told: ConsumerOffsetTable) -> ConsumerOffsetTable:
    _bounded("offsets", sum(map(len, told.offset_table.values())), OFFSET_QUEUES_MAX)
    for key, queues in told.offset_table.items():
        topic, separator, group = key.partition(SEPARATOR)
        if not (topic and separator and group):
            raise ProtocolError(f"offsets of {key[:80]!r}, which is no topic{SEPARATOR}group")
        if any(queue < 0 for queue in queues):
            raise ProtocolError(f"an offset of {key!r} on a queue below 0")
    return told


def _bounded(what: str, count: int, limit: int) -> None:
    if count > limit:
        raise ProtocolError(f"the master has {count} {what}, at most {limit} are copied")


def _check_name(what: str, name: str) -> None:
    if not name or "/" in name or name in (".", "..") or len(name.encode()) > RAW_TOPIC_BYTES_MAX:
        raise ProtocolError(f"a {what} named {name[:80]!r}")


def log_end_of(runtime: Mapping[str, str]) -> int:
    """Where a master's log ends, by its runtime information. Raises ProtocolError."""
    text = runtime.get("commitLogMaxOffset", "")
    if not text.isdecimal() or len(text) > 18:
        raise ProtocolError(f"the runtime information says commitLogMaxOffset {text[:40]!r}")
    return int(text)


def is_ours(runtime: Mapping[str, str]) -> bool:
    """Whether a broker with this runtime information is one of orbitmq, whose tables are in its log."""
    return any(name.startswith("orbitmq") for name in runtime)
