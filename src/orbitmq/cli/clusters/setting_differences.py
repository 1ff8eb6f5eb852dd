"""Settings that differ between the brokers of one cluster, of those that decide what becomes of a message or a caller.

Rules of this file
1. Brokers of one cluster are compared with each other. What a broker does not show, as RocketMQ's and ours do with keys of the other, is
   not compared.
2. How a log is synced and kept may differ between a master and its slaves on purpose: that is compared between masters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from orbitmq.client.admin import Broker

OF_MASTERS: Final = (
    "flushDiskType", "flushIntervalCommitLog", "fileReservedTime", "deleteWhen", "cleanFileForciblyEnable",
    "diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio", "refuseWithoutCopies",
)  # fmt: skip
"""What a failure of power may take, and how long messages stay."""

OF_ALL: Final = (
    "messageDelayLevel",
    "timerWheelEnable", "timerMaxDelaySec", "timerPrecisionMs", "timerRollWindowSlot", "timerCongestNumEachSlot", "timerFarEnable",
    "timerFarHorizonSec", "recallMessageEnable",
    "maxMessageSize", "enforceMessageType", "enablePropertyFilter", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
    "rejectTransactionMessage", "transactionTimeOut", "transactionCheckMax", "transactionCheckInterval",
    "authenticationEnabled", "authenticationWhitelist", "authorizationEnabled", "authorizationWhitelist", "aclEnable",
    "tls.server.mode", "tls.server.need.client.auth",
)  # fmt: skip
"""When a delayed message comes, what is taken in, and who may call: a slave may lead one day."""


class Difference(NamedTuple):
    """A key with more than one value in a cluster. brokers: by value, as `label` names them, in order."""

    key: str
    cluster: str
    brokers: Mapping[str, tuple[str, ...]]


def label(broker: Broker) -> str:
    return broker.name if broker.is_master else f"{broker.name} (slave {broker.broker_id})"


def differences_of(shown: Sequence[tuple[Broker, Mapping[str, str]]]) -> list[Difference]:
    """Differences by cluster, in the order of the keys. shown: the settings of each broker that told them."""
    found = []
    for cluster in sorted({broker.cluster for broker, _ in shown}):
        for key in (*OF_MASTERS, *OF_ALL):
            brokers: dict[str, tuple[str, ...]] = {}
            for broker, settings in shown:
                if broker.cluster != cluster or key not in settings or (key in OF_MASTERS and not broker.is_master):
                    continue
                value = " ".join(settings[key].split())
                brokers[value] = (*brokers.get(value, ()), label(broker))
            if len(brokers) > 1:
                found.append(Difference(key, cluster, brokers))
    return found


def finding(difference: Difference) -> str:
    """The values with their brokers, and what to do, for people."""
    from orbitmq.server.configuration.keys import broker_keys

    values = "; ".join(f"{value or 'nothing'} at {', '.join(brokers)}" for value, brokers in difference.brokers.items())
    key = broker_keys().find(difference.key)
    if key is not None and key.runtime:
        return f"differs: {values}; change it: orbitmq broker config set BROKER {difference.key}=..."
    return f"differs: {values}; change it in the files of the brokers, and restart them"
