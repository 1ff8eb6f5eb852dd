"""The type of a message: by its properties, and the broker's quicker reading of them agrees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.message_properties import facts_of
from orbitmq.protocol.message_types import MessageType, type_of

NAMES = [
    "TRAN_MSG", "DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "__SHARDINGKEY", "_SYS_MSG_PRIORITY_",
    "__LITE_TOPIC", "KEYS",
]  # fmt: skip


@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["true", "TRUE", "false", "1"])))
def test_both_readings_agree(properties: dict[str, str]) -> None:
    assert type_of(properties) is facts_of(properties).message_type


def test_the_first_that_fits_counts() -> None:
    properties = dict.fromkeys(NAMES, "true")
    assert type_of(properties) is MessageType.TRANSACTION
    properties["TRAN_MSG"] = "false"
    assert type_of(properties) is MessageType.DELAY
    assert type_of({}) is MessageType.NORMAL
