"""What is in flight of a queue beside a model: a dictionary of offsets.

Consumers at random pop, acknowledge with receipts new and old, renew, and die; what is due is stored again, or fails to be.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from orbitmq.broker.pop import in_flight
from orbitmq.broker.pop.in_flight import InFlight, PopQueue, PopRun, QueueInFlight

KEYS = [PopQueue("T", "g", 0), PopQueue("%RETRY%g_T", "g", 0)]
STEPS = 400


class Model:
    """One queue: offset -> (pop time, due time); due None while the message is being stored again."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[int, int | None]] = {}
        self.next_offset = 0

    def committable(self) -> int:
        return min(self.waiting, default=self.next_offset)

    def due(self, now_ms: int) -> set[tuple[int, int]]:
        return {(at, popped) for at, (popped, due) in self.waiting.items() if due is not None and due <= now_ms}


def run(seed: int) -> None:
    rng = random.Random(seed)
    flight = InFlight()
    models = {key: Model() for key in KEYS}
    receipts: list[tuple[PopQueue, int, int]] = []
    """Of all pops that ever were; most of them are out of date."""
    leaving: list[tuple[PopQueue, int, int]] = []
    now_ms = 1_000
    for step in range(STEPS):
        key = rng.choice(KEYS)
        model, queue = models[key], flight.open(key, models[key].next_offset)
        match rng.choice(["pop", "pop", "ack", "ack", "ack", "renew", "time", "leave", "fail"]):
            case "pop":
                end = model.next_offset + rng.choice([1, 8, 40, 200])
                wanted = sorted(rng.sample(range(model.next_offset, end), min(32, end - model.next_offset)))
                wanted = wanted[: rng.randrange(33)]
                due_ms = now_ms + rng.randrange(60)
                queue.take(wanted, end, now_ms, due_ms)
                model.waiting |= dict.fromkeys(wanted, (now_ms, due_ms))
                model.next_offset = end
                receipts += [(key, offset, now_ms) for offset in wanted]
            case "ack" if receipts:
                key, offset, popped = rng.choice(receipts)
                held = models[key].waiting.get(offset)
                is_its = held is not None and held[0] == popped
                assert flight.open(key, models[key].next_offset).settle(offset, popped) is is_its
                if is_its:
                    del models[key].waiting[offset]
            case "renew" if receipts:
                key, offset, popped = rng.choice(receipts)
                held = models[key].waiting.get(offset)
                is_its = held is not None and held[0] == popped
                due_ms = now_ms + rng.randrange(90)
                renewed = flight.open(key, models[key].next_offset).renew(offset, popped, popped + 1, due_ms)
                assert renewed is is_its
                if is_its:
                    models[key].waiting[offset] = popped + 1, due_ms
                    receipts.append((key, offset, popped + 1))
            case "time":
                now_ms += rng.randrange(20)
                found = flight.take_due(now_ms, 10**6)
                expected = {(key, *one) for key, model in models.items() for one in model.due(now_ms)}
                assert len(found) == len(set(found))
                assert set(found) == expected
                leaving += found
                for key, offset, popped in found:
                    models[key].waiting[offset] = popped, None
            case "leave" | "fail" as what if leaving:
                key, offset, popped = leaving.pop(rng.randrange(len(leaving)))
                queue, held = flight.open(key, models[key].next_offset), models[key].waiting.get(offset)
                if held != (popped, None):
                    continue  # its consumer acknowledged it meanwhile
                if what == "leave":
                    assert queue.settle(offset, popped)
                    del models[key].waiting[offset]
                else:
                    assert queue.renew(offset, popped, popped, now_ms + 5)
                    models[key].waiting[offset] = popped, now_ms + 5
        flight.close_if_empty(key)
        for one, model in models.items():
            assert flight.open(one, model.next_offset).committable == model.committable()
        if not step % 20:
            compare(flight, models)


def compare(flight: InFlight, models: dict[PopQueue, Model]) -> None:
    for key, model in models.items():
        queue = flight.open(key, model.next_offset)
        assert queue.committable == model.committable()
        assert (queue.next_offset, queue.count) == (model.next_offset, len(model.waiting))
        kept = [
            (at, run.popped_ms, run.due_ms) for run in queue.runs() for at in range(run.first, run.first + run.size)
        ]
        assert kept == sorted(
            (at, popped, in_flight.LEAVING if due is None else due) for at, (popped, due) in model.waiting.items()
        )
    dues = [due for model in models.values() for _, due in model.waiting.values() if due is not None]
    assert flight.message_count == sum(len(model.waiting) for model in models.values())
    assert not dues or (flight.next_due_ms is not None and flight.next_due_ms <= min(dues))


@pytest.mark.parametrize("seed", range(6))
def test_random_consumers_agree_with_the_model(seed: int) -> None:
    run(seed)


def _commits_past_the_first(queue: QueueInFlight) -> int:
    runs: list[PopRun] = list(queue.runs())
    return runs[0].first + 1 if runs else queue.next_offset


def _any_pop_settles(sound: Callable[..., object]) -> Callable[..., object]:
    def find(self: QueueInFlight, offset: int, popped_ms: int) -> object:
        found = self._chunks.get(offset // in_flight.CHUNK_OFFSETS)
        at = offset % in_flight.CHUNK_OFFSETS
        return sound(self, offset, popped_ms if found is None else found.popped_ms[at])

    return find


def _a_millisecond_early(sound: Callable[..., object]) -> Callable[..., object]:
    return lambda self, now_ms, limit: sound(self, now_ms + 1, limit)


def test_the_model_notices_planted_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = [
        (QueueInFlight, "committable", property(_commits_past_the_first)),
        (QueueInFlight, "_find", _any_pop_settles(QueueInFlight._find)),
        (InFlight, "take_due", _a_millisecond_early(InFlight.take_due)),
    ]
    for where, name, bug in planted:
        with monkeypatch.context() as patch:
            patch.setattr(where, name, bug)
            with pytest.raises(AssertionError):
                run(0)
