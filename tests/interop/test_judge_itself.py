"""The judge must notice every fault it is there for: a sound content passes, each planted fault is named."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from rig.drivers import Event
from rig.ledger import Content, Entry, check_content, check_not_early


def entry(i: int, level: int = 0) -> Entry:
    offset = None if level else i
    return Entry(
        "JudgeA", 0, offset, None if level else 1000 + i, f"key{i}", f"sha{i}", (("TAGS", "TagA"),), 100.0, level
    )


def event(i: int) -> Event:
    return {
        "event": "message",
        "topic": "JudgeA",
        "queueId": 0,
        "queueOffset": i,
        "physicalOffset": 1000 + i,
        "bodySha1": f"sha{i}",
        "storeAt": 100_000 + 1000,
        "properties": {"UNIQ_KEY": f"key{i}", "TAGS": "TagA"},
    }


BOOK = [entry(0), entry(1), entry(2, level=1)]
SOUND: list[Event] = [
    {"event": "queue", "topic": "JudgeA", "queueId": 0, "min": 0, "max": 3},
    event(0),
    event(1),
    event(2),
]


def check(events: list[Event], unanswered: set[str] | None = None) -> None:
    content = Content(events)
    check_not_early(BOOK, content)
    check_content(BOOK, content, unanswered or set())


def test_sound_content_passes() -> None:
    check(SOUND)


def lost(events: list[Event]) -> None:
    del events[1]


def foreign(events: list[Event]) -> None:
    events[0]["max"] = 4
    events.append(event(3))


def twice(events: list[Event]) -> None:
    events[0]["max"] = 4
    events.append({**event(1), "queueOffset": 3})


def changed_body(events: list[Event]) -> None:
    events[1]["bodySha1"] = "other"


def moved(events: list[Event]) -> None:
    events[1]["physicalOffset"] += 1


def other_queue(events: list[Event]) -> None:
    events[3]["queueId"] = 1


def lost_property(events: list[Event]) -> None:
    del events[2]["properties"]["TAGS"]


def hole(events: list[Event]) -> None:
    events[0]["max"] = 5


def early(events: list[Event]) -> None:
    events[3]["storeAt"] -= 1


@pytest.mark.parametrize("fault", [lost, foreign, twice, changed_body, moved, other_queue, lost_property, hole, early])
def test_planted_fault_is_caught(fault: Callable[[list[Event]], None]) -> None:
    events = copy.deepcopy(SOUND)
    fault(events)
    with pytest.raises(AssertionError):
        check(events)


def test_unanswered_message_may_be_there() -> None:
    events = copy.deepcopy(SOUND)
    foreign(events)
    check(events, unanswered={"key3"})


def test_delivery_while_a_queue_is_read_is_read_again() -> None:
    said_too_little = copy.deepcopy(SOUND)
    said_too_little[0]["max"] = 2
    assert Content(said_too_little).torn() == {("JudgeA", 0): ([0, 1, 2], [0, 1])}
    assert not Content(SOUND).torn()
