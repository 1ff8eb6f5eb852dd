"""Settings of lite consumers, and the thresholds of their queues."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.options import ConsumeFrom
from orbitmq.client.pulling.lite_options import LiteConsumerOptions, LiteHold, lite_hold
from orbitmq.errors import ConfigurationError

SMALL = LiteConsumerOptions(queue_messages_max=10, queue_bytes_max=1000, span_max=50, messages_max=20, bytes_max=2000)


def test_defaults_are_those_of_the_lite_pull_consumer() -> None:
    options = LiteConsumerOptions()
    assert (options.auto_commit, options.auto_commit_ms, options.poll_timeout_ms) == (True, 5000, 5000)
    assert (options.queue_messages_max, options.messages_max, options.span_max) == (1000, 10_000, 2000)
    assert (options.queue_bytes_max, options.topic_check_ms) == (100 << 20, 30_000)
    assert options.consume_from is ConsumeFrom.LAST


@pytest.mark.parametrize(
    "wrong",
    [
        {"auto_commit_ms": 999},
        {"poll_timeout_ms": -1},
        {"topic_check_ms": 0},
        {"messages_max": 0},
        {"messages_max": True},
        {"pull_messages_count": 1025},
        {"queue_messages_max": 0},
        {"consume_from": ConsumeFrom.TIMESTAMP},
        {"from_timestamp_ms": 5},
        {"strategy": "average"},
    ],
    ids=str,
)
def test_a_wrong_value_names_the_field(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        LiteConsumerOptions(**wrong)


def test_thresholds_are_exceeded_not_reached() -> None:
    assert lite_hold(10, 1000, 50, 20, 2000, SMALL) is None
    assert lite_hold(11, 1000, 50, 20, 2000, SMALL) is LiteHold.MESSAGES
    assert lite_hold(10, 1001, 50, 20, 2000, SMALL) is LiteHold.BYTES
    assert lite_hold(10, 1000, 51, 20, 2000, SMALL) is LiteHold.SPAN
    assert lite_hold(10, 1000, 50, 21, 2000, SMALL) is LiteHold.ALL_MESSAGES
    assert lite_hold(10, 1000, 50, 20, 2001, SMALL) is LiteHold.ALL_BYTES
