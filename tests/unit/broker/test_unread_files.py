"""What groups had not read of the files that go."""

from __future__ import annotations

import pytest
from tests.unit.broker.conftest import Rig

from orbitmq.broker import unread_files
from orbitmq.broker.unread_files import going_unread
from orbitmq.store.housekeeping import Unread


def test_unread_is_what_went_above_a_groups_offset(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = rig.broker.offsets
    rig.broker.topics.auto_create("orders", "TBW102", 2)
    for number in range(20):
        rig.sent_ok("orders", queue_id=number % 2)
    offsets.commit("ahead", "orders", 0, 9)
    offsets.commit("behind", "orders", 0, 3)
    offsets.commit("behind", "orders", 1, 0)
    offsets.commit("far behind", "orders", 0, 0)
    offsets.commit("TOOLS_CONSUMER", "orders", 0, 0)
    offsets.commit("behind", "gone", 0, 0)
    for queue in rig.store.queues:
        if queue.topic == "orders":
            queue.min_offset = 1
    went = going_unread(offsets, rig.store)
    for queue in rig.store.queues:
        if queue.topic == "orders":
            queue.min_offset = 6
    assert went() == [Unread("behind", "orders", 3 + 5), Unread("far behind", "orders", 5)], (
        "the first one had gone before"
    )
    monkeypatch.setattr(unread_files, "UNREAD_PAIRS_MAX", 2)
    assert went() == [Unread("behind", "orders", 8)], "what strangers left behind is looked at up to a bound"
