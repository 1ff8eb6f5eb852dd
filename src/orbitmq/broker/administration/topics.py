"""Requests that create, change, delete and list topics: 17, 18, 215, 21, 351, 202, 305.

Rules of this file
1. A change is answered when it is saved and the name servers have been told, so that whoever asked can use the topic.
2. Deleting a topic removes its offsets and queues here. Name servers are told by the tool that deletes, as with RocketMQ.

Source: RocketMQ remoting, admin requests for topics; broker, topics.
"""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.administration.removal import TopicRemoval
from orbitmq.broker.attributes import parse_attributes
from orbitmq.broker.counting.statistics import Statistics
from orbitmq.broker.counting.traffic import MINUTE
from orbitmq.broker.offsets import OffsetTable
from orbitmq.broker.refusal import Refusal, topic_missing
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.table_saving import TableSaving
from orbitmq.broker.topics import TopicTable
from orbitmq.clock import Clock
from orbitmq.protocol.names import topic_name_problem
from orbitmq.protocol.remoting.bodies import (
    MessageQueue,
    TopicConfig,
    TopicConfigList,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from orbitmq.protocol.remoting.commands import ResponseCode
from orbitmq.protocol.remoting.frame import Command, response
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.store.store import MessageStore

AfterRegistration = Callable[[Callable[[], None]], None]


class TopicAdminProcessor:
    def __init__(
        self,
        settings: BrokerSettings,
        topics: TopicTable,
        offsets: OffsetTable,
        saving: TableSaving,
        removal: TopicRemoval,
        store: MessageStore,
        statistics: Statistics,
        clock: Clock,
    ) -> None:
        self.after_registration: AfterRegistration | None = None
        """Calls back once the name servers know the topics of this moment, or could not be told in time."""
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._saving = saving
        self._removal = removal
        self._store = store
        self._statistics = statistics
        self._clock = clock

    # --- changing ---------------------------------------------------------------------------------------------------

    def put(self, command: Command, peer: Peer) -> Command | None:
        topic = command.text("topic")
        self._check_name(topic)
        config = TopicConfig(
            topic_name=topic,
            read_queue_nums=command.int32("readQueueNums"),
            write_queue_nums=command.int32("writeQueueNums"),
            perm=command.int32("perm"),
            topic_filter_type=command.text("topicFilterType", "SINGLE_TAG"),
            topic_sys_flag=command.int32("topicSysFlag"),
            order=command.boolean("order"),
        )
        changed = self._topics.put(config, parse_attributes(command.text("attributes")))
        return self._saved(command, peer, changed)

    def put_list(self, command: Command, peer: Peer) -> Command | None:
        """Many topics at once; attribute keys carry their sign. The first fault ends the list: what stands before it stays."""
        wanted = TopicConfigList.decode(bytes(command.body)).topic_config_list
        for config in wanted:
            self._check_name(config.topic_name)
        changed = False
        for config in wanted:
            changed = self._topics.put(config, config.attributes) or changed
        return self._saved(command, peer, changed)

    def delete(self, command: Command, peer: Peer) -> Command | None:
        topic = command.text("topic")
        if not topic.strip():
            raise Refusal(ResponseCode.INVALID_PARAMETER, "the topic name is blank")
        problem = topic_name_problem(topic)
        # Only a name that cannot be a path is deleted; a retry topic of pop consumption is illegal but may be there.
        if problem is not None and (self._topics.get(topic) is None or "/" in topic):
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        self._topics.check_changeable(topic)
        clears = self._settings.clear_retry_topic_when_delete_topic
        retries = self._removal.pop_retry_topics(self._offsets.groups_of(topic), [topic]) if clears else []
        self._removal.remove([topic, *retries])
        return self._saving.answer(command, peer, response(command, ResponseCode.SUCCESS), refuses=True)

    def _check_name(self, topic: str) -> None:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        self._topics.check_changeable(topic)

    def _saved(self, command: Command, peer: Peer, changed: bool) -> Command | None:
        """Answer a change when it is saved, and the name servers know it."""
        answer = response(command, ResponseCode.SUCCESS)

        def registered() -> bool:
            if not changed or self.after_registration is None or command.is_oneway:
                return False
            self.after_registration(lambda: peer.send(answer))
            return True

        return self._saving.answer(command, peer, answer, refuses=True, then=registered)

    # --- listing ----------------------------------------------------------------------------------------------------

    def get_all(self, command: Command, peer: Peer) -> Command:
        """The whole table in one body; the paging of later releases is optional for the answering side."""
        return response(command, ResponseCode.SUCCESS, None, {}, self._topics.wrapper().encode())

    def get(self, command: Command, peer: Peer) -> Command:
        return response(command, ResponseCode.SUCCESS, None, None, self._config(command).encode())

    def system_topics(self, command: Command, peer: Peer) -> Command:
        body = TopicList(topic_list=self._topics.system_names()).encode()
        return response(command, ResponseCode.SUCCESS, None, None, body)

    def statistics(self, command: Command, peer: Peer) -> Command:
        """First and next offset and last store time of every queue, and the rate of the last minute."""
        config = self._config(command)
        topic, store = config.topic_name, self._store
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            last_ms = store.store_time_at(topic, queue_id, high - 1) if high > low else 0
            queue = MessageQueue(topic=topic, broker_name=self._settings.broker_name, queue_id=queue_id)
            table[queue] = TopicOffset(
                min_offset=max(low, 0), max_offset=max(high, 0), last_update_timestamp=max(last_ms, 0)
            )
        counter = self._statistics.topics.get(topic)
        gained = None if counter is None else counter.within(MINUTE, self._clock.monotonic_ns())
        rate = 0.0 if gained is None else gained.count / gained.seconds
        body = TopicStatsTable(offset_table=table, topic_put_tps=rate).encode()
        return response(command, ResponseCode.SUCCESS, None, None, body)

    def _config(self, command: Command) -> TopicConfig:
        topic = command.text("topic")
        config = self._topics.get(topic)
        if config is None:
            raise topic_missing(topic)
        return config
