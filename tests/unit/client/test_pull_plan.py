"""Flow control thresholds (strictly above them), flags of a pull, pauses after errors."""

from __future__ import annotations

import pytest

from orbitmq.client.answers import remote_error
from orbitmq.client.options import ConsumerOptions
from orbitmq.client.pull_plan import Hold, PullFlag, hold, pull_flags, wait_after_error_ms
from orbitmq.errors import ConnectionLostError

OPTIONS = ConsumerOptions(queue_messages_max=10, queue_bytes_max=1000, span_max=20, bytes_max=5000)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ((10, 1000, 20, 5000), None),
        ((11, 0, 0, 0), Hold.MESSAGES),
        ((0, 1001, 0, 0), Hold.BYTES),
        ((0, 0, 21, 0), Hold.SPAN),
        ((0, 0, 0, 5001), Hold.CONSUMER_BYTES),
    ],
)
def test_a_queue_is_held_only_above_a_threshold(state: tuple[int, int, int, int], expected: Hold | None) -> None:
    assert hold(*state, OPTIONS) is expected


def test_flags() -> None:
    plain = pull_flags(commit_offset=0, from_master=True, with_subscription=False)
    assert plain == PullFlag.SUSPEND
    assert pull_flags(commit_offset=7, from_master=True, with_subscription=True) == (
        PullFlag.SUSPEND | PullFlag.COMMIT_OFFSET | PullFlag.SUBSCRIPTION
    )
    assert pull_flags(commit_offset=7, from_master=False, with_subscription=False) == PullFlag.SUSPEND


def test_flow_control_pauses_shortly_and_other_errors_longer() -> None:
    assert wait_after_error_ms(remote_error(215, None, "b:1", "pulling")) == 20
    assert wait_after_error_ms(remote_error(1, None, "b:1", "pulling")) == 1000
    assert wait_after_error_ms(ConnectionLostError("gone")) == 1000
