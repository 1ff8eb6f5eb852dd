"""What a member of a group knows of consumers when it begins to lead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.worlds.table_pair import TableBroker

from orbitmq.clock import ManualClock
from orbitmq.server.replication.broker_parts import BrokerParts
from orbitmq.server.replication.group.group_duties import GroupDuties
from orbitmq.server.replication.role_changes import RoleChanges
from orbitmq.timing.appending import Appenders


class Told:
    """Which of both was said."""

    def __init__(self) -> None:
        self.changes = RoleChanges()
        self.words: list[str] = []
        self.changes.takes_over = lambda: self.words.append("may lack")
        self.changes.goes_on = lambda: self.words.append("lacks nothing")


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def duties(told: Told, tmp_path: Path) -> Iterator[GroupDuties]:
    clock = ManualClock()
    broker = TableBroker(tmp_path, clock, leads=False)
    appenders = Appenders(broker.store, clock, [])
    none, derived = cast(Any, None), cast(Any, SimpleNamespace(tables=broker.records))
    parts = BrokerParts(none, broker.store, appenders, derived, none, none, settle=lambda: None)
    yield GroupDuties(parts, told.changes, begins=lambda _: None, registered=lambda _: None)
    broker.close()


async def test_a_leader_has_all_that_anybody_read_unless_it_founds_or_a_loss_was_accepted(
    duties: GroupDuties, told: Told
) -> None:
    for epoch in (1, 2):
        duties.serve(epoch)
        duties.step_down()
    duties.accept_loss()
    for epoch in (4, 6):
        duties.serve(epoch)
        duties.step_down()
    await duties.close()
    assert told.words == ["may lack", "lacks nothing", "may lack", "lacks nothing"]
