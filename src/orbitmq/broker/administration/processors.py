"""Administration: its processors put together, and the requests of tools that they answer.

Rules of this file
1. One processor per concern (`admin_*.py`); this module only builds them and says which code goes where.
2. What other layers bring along later (name servers, delay levels, retention, the process) is given to the processor
   that needs it, by attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orbitmq.access.audit import Subject
from orbitmq.access.gate import LedTo
from orbitmq.broker.administration.audited import AuditedSubjects
from orbitmq.broker.administration.broker import BrokerAdminProcessor
from orbitmq.broker.administration.consumers import ConsumerQuestions
from orbitmq.broker.administration.groups import GroupAdminProcessor
from orbitmq.broker.administration.progress import ProgressProcessor
from orbitmq.broker.administration.removal import TopicRemoval
from orbitmq.broker.administration.statistics import StatisticsProcessor
from orbitmq.broker.administration.topics import TopicAdminProcessor
from orbitmq.broker.administration.upkeep import UpkeepProcessor
from orbitmq.broker.core import BrokerCore
from orbitmq.broker.pull import PullProcessor
from orbitmq.broker.room import RequestHandler, Room
from orbitmq.broker.sends import Sends
from orbitmq.protocol.ids import host_text
from orbitmq.protocol.remoting.commands import RequestCode


class Administration(Room):
    def __init__(self, core: BrokerCore, sends: Sends, pulls: PullProcessor, offsets_gone: Callable[[], None]) -> None:
        """`offsets_gone` is told after offsets were deleted with their topic or group."""
        settings, topics, groups, offsets = core.settings, core.topics, core.groups, core.offsets
        clients, store, clock, statistics = core.clients, core.store, core.clock, core.statistics
        address = host_text(core.facilities.store_host)
        self._times = core.change_times
        self._is_system = topics.is_system
        removal = TopicRemoval(core, pulls, offsets_gone)
        self.topics = TopicAdminProcessor(settings, topics, offsets, core.saving, removal, store, statistics, clock)
        self.groups = GroupAdminProcessor(
            groups, offsets, core.saving, clients, core.locks, statistics, removal, address=address
        )
        self.broker = BrokerAdminProcessor(core, sends, pulls)
        self.progress = ProgressProcessor(
            settings, topics, groups, offsets, clients, store, statistics, clock, address=address
        )
        self.statistics = StatisticsProcessor(settings, statistics, clock)
        self.questions = ConsumerQuestions(settings, topics, groups, clients, store, clock, core.facilities.gate)
        self.upkeep = UpkeepProcessor(topics, offsets, store)
        self._audited = AuditedSubjects(core, self.broker.present_settings, self.progress.topics_cloned)

    def facts(self) -> Mapping[str, object]:
        return {"orbitmqQuestionsToClients": self.questions.open_count}

    def handlers(self) -> Mapping[RequestCode, RequestHandler]:
        code, topic, group, broker = RequestCode, self.topics, self.groups, self.broker
        progress, questions, upkeep = self.progress, self.questions, self.upkeep
        return {
            code.UPDATE_AND_CREATE_TOPIC: self._times.of_topics(topic.put, self._is_system),
            code.UPDATE_AND_CREATE_TOPIC_LIST: topic.put_list,
            code.DELETE_TOPIC_IN_BROKER: topic.delete,
            code.GET_ALL_TOPIC_CONFIG: topic.get_all,
            code.GET_TOPIC_CONFIG: topic.get,
            code.GET_TOPIC_STATS_INFO: topic.statistics,
            code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: topic.system_topics,
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._times.of_groups(group.put),
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: group.put_list,
            code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: group.get_all,
            code.DELETE_SUBSCRIPTIONGROUP: group.delete,
            code.GET_SUBSCRIPTIONGROUP_CONFIG: group.get,
            code.UPDATE_AND_GET_GROUP_FORBIDDEN: group.forbid,
            code.GET_CONSUMER_CONNECTION_LIST: group.consumer_connections,
            code.GET_PRODUCER_CONNECTION_LIST: group.producer_connections,
            code.GET_ALL_PRODUCER_INFO: group.all_producers,
            code.QUERY_TOPIC_CONSUME_BY_WHO: group.groups_of_topic,
            code.QUERY_TOPICS_BY_CONSUMER: group.topics_of_group,
            code.QUERY_SUBSCRIPTION_BY_CONSUMER: group.subscription,
            code.GET_CONSUME_STATS: progress.of_group,
            code.GET_BROKER_CONSUME_STATS: progress.of_all,
            code.QUERY_CONSUME_TIME_SPAN: progress.time_spans,
            code.QUERY_CORRECTION_OFFSET: progress.correction,
            code.CLONE_GROUP_OFFSET: progress.clone,
            code.GET_CONSUMER_RUNNING_INFO: questions.running_info,
            code.CONSUME_MESSAGE_DIRECTLY: questions.consume_directly,
            code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: questions.status,
            code.GET_BROKER_CONFIG: broker.configuration,
            code.UPDATE_BROKER_CONFIG: broker.change,
            code.GET_BROKER_RUNTIME_INFO: broker.runtime,
            code.GET_ALL_DELAY_OFFSET: broker.level_table,
            code.GET_BROKER_HA_STATUS: broker.replicas,
            code.FOLLOW_LOG: broker.follow,
            code.PROMOTE_SLAVE: broker.promote,
            code.DEMOTE_MASTER: broker.demote,
            code.FORGET_SLAVE: broker.forget,
            code.RESEED_SLAVE: broker.reseed,
            code.READ_LOG: broker.read_log,
            code.VIEW_BROKER_STATS_DATA: self.statistics.view,
            code.CLEAN_EXPIRED_CONSUMEQUEUE: upkeep.expired_queues,
            code.CLEAN_UNUSED_TOPIC: upkeep.unused_topics,
            code.DELETE_EXPIRED_COMMITLOG: upkeep.expired_log,
        }

    def subjects(self) -> Mapping[RequestCode, Subject]:
        return self._audited.subjects()

    def led_to(self) -> Mapping[RequestCode, LedTo]:
        return {
            RequestCode.GET_CONSUME_STATS: self.progress.topics_of_group,
            RequestCode.CLONE_GROUP_OFFSET: self.progress.topics_cloned,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.questions.topics,
        }
