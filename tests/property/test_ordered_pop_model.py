"""Ordered pops beside a model: every message, whether it is acknowledged, and until when somebody has it.

Consumers at random pop, repeat an attempt, acknowledge with receipts new and old, and hide messages for other times.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from orbitmq.broker.pop.in_flight import PopQueue
from orbitmq.broker.pop.ordering import OrderedBatch, PopOrders
from orbitmq.broker.table_saving import TableFile
from orbitmq.clock import ManualClock
from orbitmq.errors import ProtocolError

KEY = PopQueue("T", "g", 0)
STEPS = 300
COUNT = 120


def run(seed: int) -> None:
    rng = random.Random(seed)
    orders = PopOrders(cast(TableFile, None), ManualClock())
    held: dict[int, int] = {}
    """Offset -> until when somebody has it; it is not acknowledged."""
    acknowledged: set[int] = set()
    """Of the last pop."""
    receipts: list[tuple[int, int]] = []
    committed, now_ms, last_pop_ms, last_attempt = 0, 1_000, 0, ""
    for step in range(STEPS):
        now_ms += rng.choice([0, 1, 5, 20])
        match rng.choice(["pop", "pop", "repeat", "ack", "ack", "ack", "hide", "reset"]):
            case "pop" | "repeat" as what:
                attempt = last_attempt if what == "repeat" else f"attempt {step}"
                may = all(until_ms <= now_ms for until_ms in held.values()) or attempt == last_attempt
                assert orders.blocks(KEY, attempt, now_ms) is not may, "earlier messages are settled first"
                offsets = list(range(committed, min(committed + rng.randrange(1, 8), COUNT)))
                if may and offsets:
                    now_ms += 1
                    invisible_ms = rng.randrange(1, 40)
                    orders.give(KEY, offsets, now_ms, invisible_ms, attempt)
                    held, acknowledged = dict.fromkeys(offsets, now_ms + invisible_ms), set()
                    last_pop_ms, last_attempt = now_ms, attempt
                    receipts += [(offset, now_ms) for offset in offsets]
            case "ack" if receipts:
                offset, popped_ms = rng.choice(receipts[-20:])
                end = orders.acknowledge(KEY, offset, popped_ms)
                if popped_ms == last_pop_ms and held:
                    held.pop(offset, None)
                    acknowledged.add(offset)
                    while committed in acknowledged:
                        committed += 1
                    assert end == committed
                else:
                    assert end is None
                if not held:
                    last_attempt = ""
            case "hide" if receipts:
                offset, popped_ms = rng.choice(receipts[-20:])
                until_ms = now_ms + rng.randrange(40)
                is_its = popped_ms == last_pop_ms and offset in held
                assert orders.hide(KEY, offset, popped_ms, until_ms) is is_its
                if is_its:
                    held[offset] = until_ms
            case "reset" if not rng.randrange(20):
                orders.forget(KEY)
                held, acknowledged, last_attempt = {}, set(), ""
                committed = rng.randrange(committed + 1)
        free_ms = orders.next_free_ms
        hidden = [until_ms for until_ms in held.values() if until_ms > now_ms]
        assert not hidden or (free_ms is not None and free_ms <= max(hidden)), "somebody is woken in time"
        for key in orders.take_free(now_ms):
            assert not orders.blocks(key, None, now_ms)


def run_all() -> None:
    for seed in range(8):
        run(seed)


def test_random_consumers_agree_with_the_model() -> None:
    run_all()


def test_a_message_that_no_pop_brought_is_told_from_an_old_receipt() -> None:
    orders = PopOrders(cast(TableFile, None), ManualClock())
    orders.give(KEY, [5, 6], 1_000, 60_000, None)
    with pytest.raises(ProtocolError, match="was not given out by this pop"):
        orders.acknowledge(KEY, 7, 1_000)
    assert orders.acknowledge(KEY, 7, 999) is None


def test_there_is_room_for_so_many_queues() -> None:
    orders = PopOrders(cast(TableFile, None), ManualClock(), queues_max=1)
    orders.give(KEY, [0], 1_000, 60_000, None)
    assert orders.has_room(KEY)
    assert not orders.has_room(KEY._replace(queue_id=1))
    orders.acknowledge(KEY, 0, 1_000)
    assert orders.has_room(KEY._replace(queue_id=1))


def _free_when_the_first_is(batch: OrderedBatch) -> int:
    return min(batch.visible_ms.values(), default=0)


def _past_the_gap(batch: OrderedBatch) -> int:
    done = [offset for offset in batch.offsets if offset not in batch.visible_ms]
    return max(done, default=batch.offsets[0] - 1) + 1


def _of_any_pop(sound: Callable[..., Any]) -> Callable[..., Any]:
    def acknowledge(self: PopOrders, key: PopQueue, offset: int, popped_ms: int) -> Any:
        batch = self._batches.get(key)
        return sound(self, key, offset, popped_ms if batch is None or offset not in batch.offsets else batch.popped_ms)

    return acknowledge


def test_the_model_notices_planted_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    planted: list[tuple[type, str, object]] = [
        (OrderedBatch, "free_ms", property(_free_when_the_first_is)),  # a later message before an earlier is settled
        (OrderedBatch, "next_offset", property(_past_the_gap)),
        (PopOrders, "acknowledge", _of_any_pop(PopOrders.acknowledge)),
    ]
    for where, name, bug in planted:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, bug)
            with pytest.raises(AssertionError):
                run_all()
