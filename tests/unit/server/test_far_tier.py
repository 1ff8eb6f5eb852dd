"""One far tier, one broker: its folder belongs to the store, wherever it lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.server.test_watching import free_port, settings_of

from orbitmq.errors import StoreLockedError
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.server.roles.far_tier import far_folders
from orbitmq.store.files import OsFiles


@pytest.mark.parametrize("form", ["{}", "file://{}", "{}/../linked"])
async def test_two_brokers_do_not_share_a_far_tier(tmp_path: Path, form: str) -> None:
    """They would write files of the same names: the first one's messages were gone, and the second one's sent twice."""
    far = tmp_path / "far tier"
    (tmp_path / "linked").symlink_to(far)

    def process(name: str, place: str) -> ServerProcess:
        return ServerProcess(settings_of(tmp_path / name, free_port(), f"timerFarUrl={place}"))

    first = process("first", str(far))
    await first.start()
    try:
        second = process("second", form.format(str(far).replace(" ", "%20") if "://" in form else far))
        with pytest.raises(StoreLockedError, match="in use by another broker"):
            await second.start()
        await second.stop()
    finally:
        await first.stop()
    second = process("second", str(far))  # it is free again
    await second.start()
    await second.stop()


def test_a_far_tier_out_of_reach_or_elsewhere_is_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (f"{tmp_path}/file/far", "s3://bucket/far", str(tmp_path / "data"), ""):
        settings = settings_of(tmp_path / "data", free_port(), f"timerFarUrl={place}")
        assert far_folders(settings, OsFiles()) == []
    (tmp_path / "data" / "far").mkdir(parents=True, exist_ok=True)
    assert far_folders(settings, OsFiles()) == [tmp_path / "data" / "far"]
