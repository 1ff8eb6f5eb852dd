"""What a broker tells of its log to brokers that want to lead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from orbitmq.server.replication.ha_status import status_alone


def test_a_former_master_that_follows_nobody_yet_tells_how_much_it_has() -> None:
    """Else a slave that has less becomes the master while the former one waits for its successor."""
    store = cast(Any, SimpleNamespace(log=SimpleNamespace(written_end=1_000)))
    told = status_alone(store, is_slave=True)
    assert (told.master, told.ha_client_runtime_info.max_offset) == (False, 1_000)
    assert status_alone(store, is_slave=False).master
