"""What a command made of a broker, over a start: settings that say it themselves end it, and what cannot be saved is not so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.replication.kept_state import REPLICATION_FILE, Demoted, begun_anew, read_state
from orbitmq.replication.settings import BrokerKind, ReplicationSettings
from orbitmq.server.replication.demotion import DemotionRefused
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.replication.kept_role import KeptRole
from orbitmq.server.replication.promotion import PromotionRefused
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles
from orbitmq.store.worker import InlineWorker

SYNC, ASYNC, SLAVE = BrokerKind.SYNC_MASTER, BrokerKind.ASYNC_MASTER, BrokerKind.SLAVE
AS_SLAVE = Demoted(2, "10.0.0.2:10911", "10.0.0.2:10912")


class World:
    def __init__(self, root: Path) -> None:
        self._folder, self._away = root / "config", root / "away"
        self._folder.mkdir()

    def started(self, kind: BrokerKind) -> KeptRole:
        """As after a start with these settings."""
        file = ConfigFile(OsFiles(), self._folder / REPLICATION_FILE)
        self.kept = KeptFile(file, "d" * 32, InlineWorker(), Deadlines(), ManualClock(1))
        return KeptRole(self.kept, ReplicationSettings(kind=kind))

    def kind(self, settings_say: BrokerKind) -> BrokerKind:
        return self.started(settings_say).settings_now().kind

    def lose_disk(self) -> None:
        self._folder.rename(self._away)
        self._folder.write_text("a file where the directory belongs")

    def find_disk(self) -> None:
        self._folder.unlink()
        self._away.rename(self._folder)

    def saved(self) -> set[str]:
        return {"promoted", "demoted"} & set(json.loads((self._folder / REPLICATION_FILE).read_text()))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_master_that_became_a_slave_is_one_after_a_start_until_its_settings_say_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.started(SYNC).keep_demoted(AS_SLAVE)
    assert world.kind(SYNC) is SLAVE
    assert world.kept.state.demoted == AS_SLAVE
    assert "give it brokerRole=SLAVE and brokerId=2" in caplog.text
    assert world.kind(SLAVE) is SLAVE
    assert world.saved() == set()
    assert world.kind(SYNC) is SYNC, "settings that were changed once count"


async def test_a_slave_that_became_master_and_a_slave_again_is_as_its_settings_say(world: World) -> None:
    await world.started(SLAVE).keep_promoted(SYNC)
    assert world.kind(SLAVE) is SYNC
    role = world.started(SLAVE)
    await role.keep_demoted(AS_SLAVE)
    assert world.saved() == set()
    assert world.kind(SLAVE) is SLAVE


async def test_a_master_that_became_a_slave_and_leads_again_is_as_its_settings_say(world: World) -> None:
    role = world.started(ASYNC)
    await role.keep_demoted(AS_SLAVE)
    await role.keep_promoted(SYNC)
    assert world.saved() == set()
    assert world.kind(ASYNC) is ASYNC


@pytest.mark.parametrize(("settings_say", "before"), [(SYNC, set()), (SLAVE, {"promoted"})])
async def test_what_cannot_be_saved_is_not_so(world: World, settings_say: BrokerKind, before: set[str]) -> None:
    """A full disk, for example."""
    if settings_say is SLAVE:
        await world.started(SLAVE).keep_promoted(SYNC)
    role = world.started(settings_say)
    world.lose_disk()
    with pytest.raises(DemotionRefused, match="would be forgotten with the next start"):
        await role.keep_demoted(AS_SLAVE)
    world.find_disk()
    world.kept.save()
    assert world.saved() == before
    assert world.kind(settings_say) is SYNC


async def test_a_slave_by_a_command_that_cannot_save_that_it_leads_stays_one(world: World) -> None:
    role = world.started(SYNC)
    await role.keep_demoted(AS_SLAVE)
    world.lose_disk()
    with pytest.raises(PromotionRefused, match="would be forgotten with the next start"):
        await role.keep_promoted(SYNC)
    assert world.kept.state.demoted == AS_SLAVE


async def test_a_slave_that_begins_anew_stays_one_whatever_its_settings_say(world: World) -> None:
    await world.started(SYNC).keep_demoted(AS_SLAVE)
    world.kept.state.aside, world.kept.state.aside_end = "aside/20261128T082000123Z", 700
    begun = read_state(begun_anew(world.kept.state.table()), "")
    assert (begun.demoted, begun.seeding_until, begun.aside) == (AS_SLAVE, 700, "")
