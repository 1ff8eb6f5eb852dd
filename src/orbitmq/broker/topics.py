"""The topics of this broker: which exist, with how many queues and which permissions.

Source: RocketMQ broker, topic configuration; `config/topics.json`.

Rules of this file
1. System topics exist from the start; the file is merged over them.
2. Every change moves the data version and marks the table dirty. The broker saves a dirty table on a thread, and the answer to the
   request that changed it leaves after that, so an acknowledged topic survives a crash; see `table_saving`.
3. A `TopicConfig` is never modified once it is in the table; a change replaces it. Readers may keep a reference.
4. Topic names are checked by the caller that got them from a peer; names made here are legal by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import msgspec

from orbitmq.broker.attributes import TOPIC_ATTRIBUTES, alter_attributes
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.table_records.changes import RecordedSavedTable
from orbitmq.broker.table_saving import TableFile, read_table
from orbitmq.clock import Clock
from orbitmq.limits.broker import QUEUES_PER_TOPIC_MAX, TOPICS_MAX
from orbitmq.protocol import names
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, RETRY_PREFIX, Perm, dlq_topic, is_system_topic, retry_topic
from orbitmq.protocol.remoting.bodies import DataVersion, TopicConfig, TopicConfigWrapper
from orbitmq.protocol.remoting.commands import ResponseCode

READ = int(Perm.READ)
WRITE = int(Perm.WRITE)
INHERIT = int(Perm.INHERIT)

UNIT_TOPIC = 1
UNIT_SUBSCRIPTION_TOPIC = 2
"""Bits of `topic_sys_flag`."""

MULTI_TAG = "MULTI_TAG"
FILTER_TYPES = frozenset({"SINGLE_TAG", MULTI_TAG})


class TopicTable(RecordedSavedTable):
    """`on_change` is called with every created or changed topic; it registers them with the name servers."""

    record_name: ClassVar[str] = "topics"

    def __init__(self, settings: BrokerSettings, file: TableFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self._settings = settings
        self._topics: dict[str, TopicConfig] = {}
        self._system: Mapping[str, TopicConfig] = {}
        """Those that every broker with these settings has, as it makes them."""
        self.on_change: Callable[[TopicConfig], None] | None = None
        self.on_put: Callable[[str], None] | None = None
        """Told the name of every topic that is made or changed."""

    # --- life -------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Make the system topics, then merge the file over them. Raises `StoreDamagedError` for an unusable file."""
        system = system_topics(self._settings)
        self._topics = {topic.topic_name: topic for topic in system}
        self._system = dict(self._topics)
        document = self._file.load()
        if document is not None:
            saved = read_table(document, _TopicsFile, "topics.json", "a topic table")
            for name, config in saved.topic_config_table.items():
                self._topics[name] = config if config.topic_name else msgspec.structs.replace(config, topic_name=name)
            self.version = saved.data_version
        else:
            self.dirty = True

    def _frozen(self) -> Callable[[], Mapping[str, object]]:
        """As of `SavedTable`. 0.1 ms for 10,000 topics."""
        topics, version = dict(self._topics), self.version
        return lambda: {"dataVersion": version, "topicConfigTable": topics}

    # --- records ----------------------------------------------------------------------------------------------------

    def recorded_keys(self) -> Iterable[str]:
        return [name for name, config in self._topics.items() if self._system.get(name) != config]

    def recorded_value(self, key: str) -> bytes | None:
        config = self._topics.get(key)
        return None if config is None or config == self._system.get(key) else msgspec.json.encode(config)

    def _take_one(self, key: str, value: bytes | None) -> None:
        config = self._system.get(key) if value is None else msgspec.json.decode(value, type=TopicConfig, strict=False)
        if config is None:
            self._topics.pop(key, None)
        else:
            self._put(config)

    # --- reading ----------------------------------------------------------------------------------------------------

    def get(self, topic: str) -> TopicConfig | None:
        return self._topics.get(topic)

    def __len__(self) -> int:
        return len(self._topics)

    def names(self) -> list[str]:
        return list(self._topics)

    def unlisted(self, topics: Iterable[str]) -> list[str]:
        """Those that are in no table, and none of the broker's own; each once."""
        return sorted(topic for topic in set(topics) if self.get(topic) is None and not self.is_system(topic))

    def is_system(self, topic: str) -> bool:
        return topic in self._system or is_system_topic(topic)

    def system_names(self) -> list[str]:
        return sorted(name for name in self._topics if self.is_system(name))

    def wrapper(self, only: Iterable[str] | None = None, *, registration: bool = False) -> TopicConfigWrapper:
        """The table, or the topics of `only`, with the current version.

        For a `registration` the permissions are cut by the broker's own.
        """
        chosen = self._topics if only is None else {name: self._topics[name] for name in only if name in self._topics}
        allowed = self._settings.broker_permission
        if registration:
            chosen = {
                name: config
                if config.perm & ~allowed & (READ | WRITE) == 0
                else msgspec.structs.replace(config, perm=config.perm & allowed)
                for name, config in chosen.items()
            }
        return TopicConfigWrapper(topic_config_table=dict(chosen), data_version=self.version)

    # --- automatic creation -----------------------------------------------------------------------------------------

    def auto_create(self, topic: str, template: str, queues_wanted: int, *, unit: bool = False) -> TopicConfig | None:
        """Make `topic` in the image of `template`, as a send to an unknown topic does; None when that is not allowed.

        A `%RETRY%` topic is made with one queue when the template does not help.
        """
        model = self._topics.get(template)
        inherits = model is not None and bool(model.perm & INHERIT)
        if template == AUTO_CREATE_TOPIC and not self._settings.auto_create_topic_enable:
            inherits = False
        if model is not None and inherits:
            queues = max(0, min(queues_wanted, model.write_queue_nums))
            return self._create(
                TopicConfig(
                    topic_name=topic,
                    read_queue_nums=queues,
                    write_queue_nums=queues,
                    perm=model.perm & ~INHERIT,
                    topic_sys_flag=UNIT_TOPIC if unit else 0,
                    topic_filter_type=model.topic_filter_type,
                )
            )
        if topic.startswith(RETRY_PREFIX):
            return self._create(_plain(topic, 1, sys_flag=UNIT_SUBSCRIPTION_TOPIC if unit else 0))
        return None

    def ensure_retry(self, group: str, queues: int, *, unit: bool = False, order: bool = False) -> TopicConfig:
        """The retry topic of `group`, made with `queues` queues when missing."""
        name = retry_topic(group)
        sys_flag = UNIT_SUBSCRIPTION_TOPIC if unit else 0
        return self._topics.get(name) or self._create(_plain(name, queues, sys_flag=sys_flag, order=order))

    def ensure_wide_retry(self, group: str, queues: int) -> TopicConfig:
        """The retry topic of `group` with at least `queues` queues."""
        config = self.ensure_retry(group, queues)
        if config.read_queue_nums >= queues:
            return config
        return self._create(msgspec.structs.replace(config, read_queue_nums=queues, write_queue_nums=queues))

    def ensure_dead_letter(self, group: str) -> TopicConfig:
        """The dead-letter topic of `group`: one queue, readable, made when missing."""
        name = dlq_topic(group)
        return self._topics.get(name) or self._create(_plain(name, 1))

    def ensure_system(self, name: str) -> TopicConfig:
        """A topic of the broker's own with one queue, made when missing."""
        return self._topics.get(name) or self._create(_plain(name, 1))

    # --- changes by request -----------------------------------------------------------------------------------------

    def put(self, config: TopicConfig, changes: Mapping[str, str]) -> bool:
        """Create or replace a topic; False when nothing differs. Raises `Refusal` and changes nothing when not allowed.

        `changes` are attribute changes with sign; `config.attributes` is ignored.
        """
        self._check_shape(config)
        current = self._topics.get(config.topic_name)
        attributes = alter_attributes(
            current.attributes if current is not None else {},
            changes,
            TOPIC_ATTRIBUTES,
            creating=current is None,
            mixed_allowed=self._settings.enable_mixed_message_type,
        )
        config = msgspec.structs.replace(config, attributes=attributes)
        if config == current:
            return False
        self._create(config)
        return True

    def delete(self, topic: str) -> bool:
        """Forget `topic`; False when it was not there. Its queues and offsets are the caller's business."""
        if self._topics.pop(topic, None) is None:
            return False
        self._changed_key(topic)
        return True

    def take_orders(self, orders: Iterable[str]) -> None:
        """Mark the topics that a name server keeps an order configuration for. Nothing is unmarked: another name server
        may know more."""
        for topic in orders:
            config = self._topics.get(topic)
            if config is not None and not config.order:
                self._create(msgspec.structs.replace(config, order=True))

    def check_changeable(self, topic: str) -> None:
        """Raises `Refusal` for a system topic."""
        if self._settings.validate_system_topic_when_update_topic and self.is_system(topic):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"topic {topic!r} is a system topic; it can be neither changed nor deleted",
            )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _check_shape(self, config: TopicConfig) -> None:
        for what, queues in (("readQueueNums", config.read_queue_nums), ("writeQueueNums", config.write_queue_nums)):
            if not 0 <= queues <= QUEUES_PER_TOPIC_MAX:
                raise Refusal(
                    ResponseCode.INVALID_PARAMETER, f"{what} is between 0 and {QUEUES_PER_TOPIC_MAX}, not {queues}"
                )
        if not 0 <= config.perm <= READ | WRITE | INHERIT:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"perm is a sum of 4 (read), 2 (write) and 1 (inherit), not {config.perm}",
            )
        if config.topic_filter_type not in FILTER_TYPES:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType is SINGLE_TAG or MULTI_TAG, not {config.topic_filter_type!r}",
            )

    def _create(self, config: TopicConfig) -> TopicConfig:
        if config.topic_name not in self._topics and len(self._topics) >= TOPICS_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"topic {config.topic_name!r} cannot be created: this broker already has {TOPICS_MAX} topics; "
                "delete some or use another broker",
            )
        self._changed_key(config.topic_name)
        self._put(config)
        return config

    def _put(self, config: TopicConfig) -> None:
        self._topics[config.topic_name] = config
        if self.on_put is not None:
            self.on_put(config.topic_name)
        if self.on_change is not None:
            self.on_change(config)


class _TopicsFile(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = msgspec.field(default_factory=lambda: DataVersion())


def system_topics(settings: BrokerSettings) -> list[TopicConfig]:
    """The topics a broker with these settings always has."""
    topics = names.system_topics(
        settings.broker_cluster_name,
        settings.broker_name,
        auto_create_queues=settings.default_topic_queue_nums if settings.auto_create_topic_enable else None,
        cluster_topic=settings.cluster_topic_enable,
        broker_topic=settings.broker_topic_enable,
        trace_topic=settings.msg_trace_topic_name if settings.trace_topic_enable else None,
        timer_wheel=settings.timer_wheel_enable,
    )
    return [_plain(topic.name, topic.queues, perm=int(topic.perm)) for topic in topics]


def _plain(name: str, queues: int, *, perm: int = READ | WRITE, sys_flag: int = 0, order: bool = False) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=sys_flag,
        order=order,
    )
