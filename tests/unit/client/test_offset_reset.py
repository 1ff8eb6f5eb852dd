"""Where a reset puts an offset."""

from __future__ import annotations

import pytest

from orbitmq.client.offset_reset import ResetTo, check_reset, planned_offset
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.remoting.bodies import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize(
    ("to", "found", "offset", "planned"),
    [
        (ResetTo.EARLIEST, None, None, 3),
        (ResetTo.LATEST, None, None, 10),
        (ResetTo.TIME, 6, None, 6),
        (ResetTo.TIME, 0, None, 3),
        (ResetTo.OFFSET, None, 3, 3),
        (ResetTo.OFFSET, None, 10, 10),
    ],
)
def test_where_a_reset_puts_an_offset(to: ResetTo, found: int | None, offset: int | None, planned: int) -> None:
    assert planned_offset(to, QUEUE, 3, 10, found, offset) == planned


@pytest.mark.parametrize("offset", [2, 11])
def test_an_offset_outside_the_queue_is_refused(offset: int) -> None:
    with pytest.raises(ConfigurationError, match="holds 3 to 10"):
        planned_offset(ResetTo.OFFSET, QUEUE, 3, 10, None, offset)


@pytest.mark.parametrize(
    ("to", "at_ms", "offset"),
    [(ResetTo.TIME, None, None), (ResetTo.OFFSET, None, None), (ResetTo.LATEST, 5, None), (ResetTo.TIME, 5, 5)],
)
def test_a_reset_is_given_what_it_needs_and_no_more(to: ResetTo, at_ms: int | None, offset: int | None) -> None:
    with pytest.raises(ConfigurationError):
        check_reset(to, at_ms, offset)
