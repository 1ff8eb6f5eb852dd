"""From a subscription, of a request or of a registered group, to what is wanted.

Rules of this file
1. The order of the checks is the protocol's.
2. Retry topics are not filtered by properties: what is in them was wanted once. With `filterSupportRetry` pulls of them are, by what
   the group wants now of the topic that a message came from.

Source: RocketMQ broker, pull path and filtering; remoting, PULL_MESSAGE and CHECK_CLIENT_CONFIG.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from orbitmq.broker.choosing.filter_tests import FilterTests
from orbitmq.broker.choosing.wanted import RetriedFilter, WantedMessages
from orbitmq.broker.clients import ClientRegistry
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.settings import BrokerSettings
from orbitmq.protocol.filtering.expression import SQL92, TAG, PropertyFilter
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import SubscriptionData, SubscriptionGroupConfig
from orbitmq.protocol.remoting.commands import ResponseCode

FORBIDDEN_BROADCAST: Final = "4"
FORBIDDEN_SUBSCRIPTION: Final = "5"
"""Values of the response field `forbiddenType`."""

EVERYTHING: Final = WantedMessages()


class Subscriptions:
    """What consumers of one broker want."""

    def __init__(self, settings: BrokerSettings, groups: GroupTable, clients: ClientRegistry) -> None:
        self._settings = settings
        self._groups = groups
        self._clients = clients
        self._tests = FilterTests()

    def check(self, subscription: SubscriptionData) -> None:
        """Whether a subscription can be served, before its consumer starts. Raises Refusal."""
        if not _is_tags(subscription.expression_type):
            self._check_enabled(subscription.expression_type)
        self.wanted("", subscription.sub_string, subscription.expression_type)

    def wanted(self, topic: str, expression: str | None, kind: str | None) -> WantedMessages:
        """What an expression wants of a topic. Raises Refusal for one that does not compile, or of an unknown type."""
        if _is_tags(kind):
            return WantedMessages(codes=self._tests.of_tags(expression or ""))
        if kind != SQL92:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"{str(kind)[:40]!r} is no type of filter expressions here: there are {TAG} and {SQL92}",
                {},
            )
        test = self._tests.of_properties(expression or "")
        self._check_enabled(kind)
        return EVERYTHING if topic.startswith(RETRY_PREFIX) else WantedMessages(properties=test)

    def registered(self, group: SubscriptionGroupConfig, topic: str, sub_version: int) -> WantedMessages:
        """What the heartbeats of a group's members ask for, `sub_version` or newer. Raises Refusal."""
        name = group.group_name
        online = self._clients.consumer(name)
        if online is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"no client of group {name!r} is registered; send a heartbeat first",
                {},
            )
        if not group.consume_broadcast_enable and online.is_broadcasting:
            raise _forbidden(FORBIDDEN_BROADCAST, f"group {name!r} may not broadcast")
        if self._groups.reading_forbidden(name, topic):
            raise _forbidden(FORBIDDEN_SUBSCRIPTION, f"group {name!r} may not read topic {topic!r}")
        subscription = online.subscriptions.get(topic)
        if subscription is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"group {name!r} does not subscribe to {topic!r}", {})
        if subscription.sub_version < sub_version:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the subscription of group {name!r} to {topic!r} known here is older than the client's; "
                "its next heartbeat brings the new one",
                {},
            )
        if subscription.class_filter_mode:
            return EVERYTHING
        try:
            return self.wanted(topic, subscription.sub_string, subscription.expression_type)
        except Refusal as refusal:
            if _is_tags(subscription.expression_type) or refusal.code is not ResponseCode.SUBSCRIPTION_PARSE_FAILED:
                raise
            raise Refusal(
                ResponseCode.FILTER_DATA_NOT_EXIST, f"group {name!r}, topic {topic!r}: {refusal}", {}
            ) from refusal

    def of_retries(self, group: str, topic: str, wanted: WantedMessages) -> WantedMessages:
        """What a pull of a group gets of a topic of which it has `wanted`."""
        if not self._settings.filter_support_retry or not topic.startswith(RETRY_PREFIX):
            return wanted
        return WantedMessages(codes=wanted.codes, properties=RetriedFilter(partial(self._filter_of, group)))

    def _filter_of(self, group: str, topic: str) -> PropertyFilter | None:
        """The expression by which a group that is online chooses messages of a topic; None where everything passes."""
        online = self._clients.consumer(group)
        subscription = None if online is None else online.subscriptions.get(topic)
        if subscription is None or subscription.expression_type != SQL92:
            return None
        try:
            return self._tests.of_properties(subscription.sub_string or "")
        except Refusal:
            return None

    def _check_enabled(self, kind: str | None) -> None:
        if not self._settings.enable_property_filter:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"filtering by {str(kind)[:40]} is switched off on this broker (enablePropertyFilter=false); use tags",
                {},
            )


def _is_tags(kind: str | None) -> bool:
    return not kind or kind == TAG


def _forbidden(kind: str, remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": kind})
