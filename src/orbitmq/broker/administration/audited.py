"""What requests that administer topics, groups, offsets and settings are about, as text, for the audit log.

Rules of this file
1. What a request names in its body is said, its values are not: they show as the state before and after.
2. An entry for each thing that a request can change, under a name that a person knows it by: its settings as JSON, its offsets by queue.
3. Nothing is changed or refused here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from orbitmq.access.audit import About, Members, Subject
from orbitmq.broker.core import BrokerCore
from orbitmq.protocol.remoting.bodies import SubscriptionGroupConfig, SubscriptionGroupList, TopicConfigList
from orbitmq.protocol.remoting.bodies.json_body import JsonBody
from orbitmq.protocol.remoting.commands import RequestCode
from orbitmq.protocol.remoting.frame import Command
from orbitmq.protocol.remoting.peer import Peer
from orbitmq.protocol.remoting.setting_changes import asked_keys


class AuditedSubjects:
    def __init__(
        self,
        core: BrokerCore,
        configuration: Callable[[], Mapping[str, str]],
        topics_cloned: Callable[[Command], Iterable[str]],
    ) -> None:
        self._topics = core.topics
        self._groups = core.groups
        self._offsets = core.offsets
        self._configuration = configuration
        self._topics_cloned = topics_cloned

    def subjects(self) -> Mapping[RequestCode, Subject]:
        code = RequestCode
        return {
            code.UPDATE_AND_CREATE_TOPIC: lambda command, _: self._topic_names([command.text("topic")]),
            code.UPDATE_AND_CREATE_TOPIC_LIST: self._topic_list,
            code.DELETE_TOPIC_IN_BROKER: self._deleted_topic,
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._group,
            code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._group_list,
            code.DELETE_SUBSCRIPTIONGROUP: self._deleted_group,
            code.UPDATE_AND_GET_GROUP_FORBIDDEN: self._forbidden,
            code.CLONE_GROUP_OFFSET: self._cloned,
            code.UPDATE_BROKER_CONFIG: lambda command, _: About(self._configuration, asked_keys(command.body)),
            code.PROMOTE_SLAVE: _in_body,
            code.DEMOTE_MASTER: _in_body,
            code.FORGET_SLAVE: _in_body,
            code.RESEED_SLAVE: _in_body,
        }

    def _topic_names(self, names: Sequence[str], group_pairs: Sequence[tuple[str, str]] = (), said: str = "") -> About:
        return About(lambda: {**_settings("topic", names, self._topics.get), **self._offset_texts(group_pairs)}, said)

    def _group_names(self, names: Sequence[str], group_pairs: Sequence[tuple[str, str]] = (), said: str = "") -> About:
        return About(lambda: {**_settings("group", names, self._groups.known), **self._offset_texts(group_pairs)}, said)

    def _offset_texts(self, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
        """By queue, of groups on topics."""
        return {
            f"offsets of {group} on {topic}": Members(json.dumps(queues))
            for group, topic in pairs
            if (queues := dict(self._offsets.queues(group, topic)))
        }

    def _topic_list(self, command: Command, peer: Peer) -> About:
        configs = TopicConfigList.decode(bytes(command.body)).topic_config_list
        names = [config.topic_name for config in configs]
        return self._topic_names(names, said=f"topics={','.join(names)}")

    def _deleted_topic(self, command: Command, peer: Peer) -> About:
        topic = command.text("topic")
        return self._topic_names([topic], [(group, topic) for group in self._offsets.groups_of(topic)])

    def _group(self, command: Command, peer: Peer) -> About:
        name = SubscriptionGroupConfig.decode(bytes(command.body)).group_name
        return self._group_names([name], said=f"groupName={name}")

    def _group_list(self, command: Command, peer: Peer) -> About:
        configs = SubscriptionGroupList.decode(bytes(command.body)).group_config_list
        names = [config.group_name for config in configs]
        return self._group_names(names, said=f"groupNames={','.join(names)}")

    def _deleted_group(self, command: Command, peer: Peer) -> About:
        group = command.text("groupName")
        return self._group_names([group], [(group, topic) for topic in self._offsets.topics_of(group)])

    def _forbidden(self, command: Command, peer: Peer) -> About | None:
        group, topic = command.text("group"), command.text("topic")
        if "readable" not in command.fields:
            return None
        return About(lambda: {"readable": str(not self._groups.reading_forbidden(group, topic)).lower()})

    def _cloned(self, command: Command, peer: Peer) -> About:
        pairs = [(command.text("destGroup"), topic) for topic in self._topics_cloned(command)]
        return About(lambda: self._offset_texts(pairs))


def _settings(kind: str, names: Iterable[str], known: Callable[[str], JsonBody | None]) -> dict[str, str]:
    found = ((name, known(name)) for name in names)
    return {f"{kind} {name}": Members(config.encode().decode()) for name, config in found if config is not None}


def _in_body(command: Command, peer: Peer) -> About:
    """A request of ours whose body is a few words, none of them secret."""
    return About(said=bytes(command.body).decode("utf-8", "replace"))
