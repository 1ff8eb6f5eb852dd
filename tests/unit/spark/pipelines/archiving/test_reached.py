"""How far an archive is, as numbers of applications in the log of a Delta table."""

from __future__ import annotations

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue
from orbitmq.spark.pipelines.archiving.reached import (
    log_application,
    quarantine_application,
    queue_application,
    reached_of,
    since_application,
)


def test_there_and_back() -> None:
    odd = MessageQueue("%RETRY%a/b", "broker/a", 3)
    reached = reached_of(
        {
            queue_application(odd): 17,
            log_application(""): 5,
            log_application("broker-a"): 6,
            since_application("broker-a"): 1_000,
            quarantine_application("_quarantine/x.jsonl"): 2,
            "somebody else's": 9,
        }
    )
    assert reached.queues == {odd: 17}
    assert reached.positions == {"": 5, "broker-a": 6}
    assert reached.since == {"broker-a": 1_000}
    assert reached.quarantined == {"_quarantine/x.jsonl": 2}


@pytest.mark.parametrize(
    "name", ["orbitmq/queue/orders/broker-a", "orbitmq/queue/orders/broker-a/first", "orbitmq/new/x"]
)
def test_one_of_ours_that_is_not_understood_is_no_beginning_from_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match="does not know"):
        reached_of({name: 1})
