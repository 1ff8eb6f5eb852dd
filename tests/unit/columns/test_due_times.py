"""The due time of a message, by which of its properties counts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from orbitmq.columns.due_times import due_times
from orbitmq.columns.properties import split
from orbitmq.protocol.properties import encode_properties


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({}, None),
        ({"DELAY": "3"}, None),
        ({"TIMER_DELIVER_MS": "5000"}, 5000),
        ({"TIMER_DELIVER_MS": "5000", "TIMER_OUT_MS": "4000"}, 5000),
        ({"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "4000"}, 4000),
        ({"TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "9000", "TIMER_OUT_MS": "4000"}, 4000),
        ({"TIMER_DELAY_MS": "5"}, None),
        ({"ORBITMQ_DUE_MS": "4500", "TIMER_DELIVER_MS": "9000", "TIMER_OUT_MS": "4000"}, 4500),
        ({"ORBITMQ_DUE_MS": "soon", "TIMER_OUT_MS": "4000"}, 4000),
        ({"TIMER_DELIVER_MS": "+7"}, 7),
        ({"TIMER_DELIVER_MS": "-7"}, -7),
        ({"TIMER_DELIVER_MS": "9" * 16}, None),
    ],
)
def test_which_property_counts(properties: dict[str, str], due_ms: int | None) -> None:
    found = due_times(split(pa.array([encode_properties(properties), b"KEYS\x01other\x02"], pa.binary())))
    assert found.type == pa.timestamp("us", tz="UTC")
    assert found.view(pa.int64()).to_pylist() == [None if due_ms is None else due_ms * 1000, None]
