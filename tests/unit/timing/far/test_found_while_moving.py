"""A message of the far tier that is moved while somebody looks for it is found where it waits now."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.worlds.little_far import DAY_MS, LittleFar

from orbitmq.store.durability import PutStatus
from orbitmq.store.store import MessageStore
from orbitmq.timing.far import queries
from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.buffered import Buffered, FarUnit
from orbitmq.timing.far.queries import FarPage
from orbitmq.timing.far.tier import FarQuery


@pytest.mark.parametrize("landed", [False, True])
def test_a_look_up_that_was_overtaken_by_a_reschedule(tmp_path: Path, landed: bool) -> None:
    far = LittleFar(tmp_path / "store", ArrowTier(str(tmp_path / "far")))
    (tmp_path / "store").mkdir(exist_ok=True)
    now_ms = far.clock.now_ms()
    far.send(now_ms + 10 * DAY_MS, UNIQ_KEY="U1")
    if landed:
        far.advance(DAY_MS)
    else:
        far.send(now_ms + 11 * DAY_MS, UNIQ_KEY="U2")
        far.advance(DAY_MS)
        far.send(now_ms + 10 * DAY_MS, UNIQ_KEY="U3")
    key = "U1" if landed else "U3"
    (found,) = far.find(message_id=key, bodies=True)
    answers: list[FarPage | Exception] = []
    far.far.find(FarQuery(message_id=key, bodies=True), answers.append)
    assert far.reschedule(found, now_ms + 12 * DAY_MS) is PutStatus.PUT_OK
    far.work()
    (page,) = answers
    assert isinstance(page, FarPage)
    assert [(record.message_id, record.deliver_ms) for record in page.records] == [(key, now_ms + 12 * DAY_MS)]
    far.close()


def test_a_look_up_that_is_overtaken_when_it_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had begun anew because a file still has the row of an earlier place."""
    (tmp_path / "store").mkdir()
    far = LittleFar(tmp_path / "store", ArrowTier(str(tmp_path / "far")))
    now_ms = far.clock.now_ms()
    far.send(now_ms + 10 * DAY_MS, UNIQ_KEY="U1")
    far.send(now_ms + 10 * DAY_MS, UNIQ_KEY="U2")
    far.advance(DAY_MS)
    assert far.reschedule(far.find(message_id="U1", bodies=True)[0], now_ms + 11 * DAY_MS) is PutStatus.PUT_OK
    far.advance(DAY_MS)
    (found,) = far.find(message_id="U1", bodies=True)
    correct, looks = queries.in_log, 0

    def in_log(store: MessageStore, buffered: Buffered, query: FarQuery) -> list[FarUnit]:
        nonlocal looks
        looks += 1
        units = correct(store, buffered, query)
        if looks == 2:
            assert far.reschedule(found, now_ms + 12 * DAY_MS) is PutStatus.PUT_OK
        return units

    monkeypatch.setattr(queries, "in_log", in_log)
    (moved,) = far.find(message_id="U1")
    assert looks == 3
    assert moved.deliver_ms == now_ms + 12 * DAY_MS
    far.close()
