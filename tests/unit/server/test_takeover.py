"""Stores of RocketMQ with transactions that cannot be finished yet: counted, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.names import HALF_TOPIC
from orbitmq.server.takeover import refuse_unfinished, undecided_halves
from orbitmq.store.files import OsFiles

FILES = OsFiles()


class Queue:
    def __init__(self, min_offset: int, max_offset: int) -> None:
        self.min_offset = min_offset
        self.max_offset = max_offset


class Queues:
    """As much of the consume queues as is asked."""

    def __init__(self, **queues: Queue) -> None:
        self._queues = queues

    def get(self, topic: str, queue_id: int) -> Queue | None:
        assert queue_id == 0
        return self._queues.get(topic)


def queues(**found: Queue) -> Any:
    return Queues(**found)


def test_an_ordinary_store_is_taken_over(tmp_path: Path) -> None:
    refuse_unfinished(tmp_path, FILES, queues())


@pytest.mark.parametrize(("table", "expected"), [(None, 6), ({}, 6), ({"0": 4}, 2), ({"0": 6}, 0), ({"0": 99}, 0)])
def test_halves_that_nobody_has_decided(tmp_path: Path, table: dict[str, int] | None, expected: int) -> None:
    import json

    if table is not None:
        (tmp_path / "config").mkdir()
        offsets = {"offsetTable": {f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": table}}
        (tmp_path / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    found = queues(**{HALF_TOPIC: Queue(0, 6)})
    assert undecided_halves(tmp_path, FILES, found) == expected
    if expected:
        with pytest.raises(ConfigurationError, match=f"up to {expected} undecided transactions"):
            refuse_unfinished(tmp_path, FILES, found)
