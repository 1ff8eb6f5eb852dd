"""A far message that waits under a fresh unique key is found, shown and recalled by the key that its sender knows."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from tests.worlds.little_far import DAY_MS, LittleFar

from orbitmq.protocol.names import TIMER_CHANGES_TOPIC
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.store.durability import PutStatus
from orbitmq.timing import release
from orbitmq.timing.far.changes import Recalled, decode_change
from orbitmq.timing.far.tier import FarTierError

OpenFar = Callable[..., LittleFar]
RENAMED = {Property.UNIQ_KEY: "FRESH", Property.REAL_UNIQ_KEY: "U1"}


def ids(far: LittleFar, message_id: str) -> list[str | None]:
    return [record.message_id for record in far.find(topic="Topic", message_id=message_id)]


@pytest.mark.parametrize("landed", [False, True])
def test_it_is_found_by_the_senders_key_alone(open_far: OpenFar, landed: bool) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS, **RENAMED)
    far.send(far.clock.now_ms() + 11 * DAY_MS, UNIQ_KEY="U2")
    if landed:
        far.advance(DAY_MS)
        assert not len(far.far.held.buffered)
    assert ids(far, "U1") == ["U1"]
    assert ids(far, "FRESH") == []
    assert ids(far, "U2") == ["U2"]
    far.close()


def test_without_a_key_index_it_is_found_all_the_same(open_far: OpenFar) -> None:
    far = open_far(message_index_enable=False)
    far.send(far.clock.now_ms() + 10 * DAY_MS, **RENAMED)
    for number in range(60):
        far.send(far.clock.now_ms() + 11 * DAY_MS, UNIQ_KEY=f"N{number}", KEYS=f"k{number}")
    assert ids(far, "U1") == ["U1"]
    assert ids(far, "N59") == ["N59"]
    assert ids(far, "FRESH") == []
    assert [found.message_id for found in far.find(topic="Topic", key="k58")] == ["N58"]
    far.close()


def test_after_a_crash_and_after_a_stop_too(open_far: OpenFar) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS, **RENAMED)
    far.kill()
    far = open_far(clock=far.clock)
    assert ids(far, "U1") == ["U1"]
    far.close()
    far = open_far(clock=far.clock)
    assert ids(far, "U1") == ["U1"]
    far.close()


def test_what_landed_or_was_recalled_is_not_found_in_the_log_any_more(open_far: OpenFar) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS, **RENAMED)
    [found] = far.find(message_id="U1", bodies=True)
    assert far.recall(found) is PutStatus.PUT_OK
    assert ids(far, "U1") == []
    far.send(far.clock.now_ms() + 10 * DAY_MS)
    far.advance(DAY_MS)
    assert far.far.held.buffered.renamed("U1") == []
    far.close()


def test_the_recall_bears_the_senders_key(open_far: OpenFar) -> None:
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS, **RENAMED)
    [found] = far.find(message_id="U1", bodies=True)
    far.recall(found)
    [record] = far.records(TIMER_CHANGES_TOPIC)
    change = decode_change(bytes(record.body))
    assert isinstance(change, Recalled)
    assert (change.topic, change.message_id) == ("Topic", "U1")
    assert decode_properties(record.properties)[Property.UNIQ_KEY] == "U1"
    far.close()


@pytest.mark.parametrize("landed", [False, True])
def test_a_log_that_cannot_be_read_is_no_answer(
    open_far: OpenFar, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    """A message that waits is not called unknown, nor left out of a page."""
    far = open_far()
    far.send(far.clock.now_ms() + 10 * DAY_MS, UNIQ_KEY="U1")
    if landed:
        far.advance(DAY_MS)
        far.send(far.clock.now_ms() + 10 * DAY_MS, UNIQ_KEY="U2")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "bad sector")

    with monkeypatch.context() as failing:
        failing.setattr(release, "read_sound", fail)
        for query in ({"message_id": "U2" if landed else "U1"}, {"limit": 10}):
            with pytest.raises(FarTierError, match="could not be read"):
                far.find(topic="Topic", **query)
    assert ids(far, "U1") == ["U1"]
    assert far.far.keeper is not None
    assert far.far.keeper.questions == 0
    far.close()
