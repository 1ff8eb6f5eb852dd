"""An hour of micro-batches of a second against the broker's memory of idempotent sends; `make batches-campaign` plays seven days."""

from __future__ import annotations

import pytest
from tests.property import batches_campaign
from tests.property.batches_campaign import Broken, Form, play

from orbitmq.broker.idempotence.epoch_keys import EpochKeys
from orbitmq.broker.idempotence.memory import KeyBounds, KeyMemory
from orbitmq.spark.writing.scopes import Writer, job_writer


def test_an_hour_of_a_stream_takes_the_memory_of_two_batches() -> None:
    found = play(Form.STREAM, 3_600)
    assert found.repeats > 1_000
    assert found.most_scopes == 1
    assert found.most_bytes < 100_000


@pytest.mark.parametrize("form", [Form.FOREACH_BATCH, Form.JOBS, Form.NAMED_JOBS])
def test_batches_of_jobs_leave_a_record_each(form: Form) -> None:
    found = play(form, 120, partitions=40)
    assert found.repeats > 40
    assert found.most_scopes == 1, "a partition that has ended takes no room"
    assert found.most_finished == (1 if form is Form.FOREACH_BATCH else 120)


def test_a_first_batch_of_many_rows_has_room() -> None:
    """As many rows as the owner of a small memory may have: three quarters of it."""
    memory = KeyMemory(KeyBounds(memory_bytes=8 << 20))
    found = play(Form.STREAM, 5, partitions=200, first_rows=180, memory=memory)
    assert 2 << 20 < found.most_bytes <= 6 << 20


def test_scopes_that_nobody_ends_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(form: Form, batch: int, part: int) -> Writer:
        return job_writer("orders", batch * 1_000 + part, brief=False)._replace(ends=False)

    monkeypatch.setattr(batches_campaign, "_writer", endless)
    with pytest.raises(Broken, match=r"refused at \d+ s .* scopes"):
        play(Form.JOBS, 200)


def test_a_memory_that_keeps_one_batch_is_noticed() -> None:
    class Short(KeyMemory):
        def confirm(self, keys: EpochKeys, place: int) -> None:
            super().confirm(keys, place)
            scope = self.scope(keys.scope)
            assert scope is not None
            if scope.previous is not None:
                self._leave(scope.previous)
                scope.previous = None

    with pytest.raises(Broken, match="is over"):
        play(Form.STREAM, 600, partitions=4, memory=Short(KeyBounds()))
