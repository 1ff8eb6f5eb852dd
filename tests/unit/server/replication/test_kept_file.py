"""What is kept about copies is on the disk before it is told, and is tried again where that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.worlds.little_store import LittleStore, SteppedWorker

from orbitmq.clock import ManualClock
from orbitmq.deadlines import Deadlines
from orbitmq.errors import OrbitError
from orbitmq.limits.replication import KEPT_FILE_RETRY_MS
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.replication.away_slaves import AwaySlaves
from orbitmq.replication.kept_state import REPLICATION_FILE
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.replication.ticketing import Ticketing
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles


class World:
    def __init__(self, root: Path) -> None:
        self.clock, self.deadlines, self.worker = ManualClock(), Deadlines(), SteppedWorker()
        self.folder = root / "config"
        file = ConfigFile(OsFiles(), self.folder / REPLICATION_FILE)
        self.kept = KeptFile(file, "ab" * 16, self.worker, self.deadlines, self.clock)

    def lose_disk(self) -> None:
        self.folder.write_text("a file where the directory belongs")

    def find_disk(self) -> None:
        self.folder.unlink()

    def retry(self) -> None:
        self.clock.advance(KEPT_FILE_RETRY_MS)
        self.deadlines.run_due(self.clock.monotonic_ns())
        self.worker.close()

    def saved(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / REPLICATION_FILE).read_text())
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_who_saves_is_told_when_it_is_on_the_disk(world: World) -> None:
    told: list[str] = []
    world.kept.state.slaves = {1: "cd" * 16}
    world.kept.save(told.append)
    assert (told, world.kept.is_saved) == ([], False)
    world.worker.close()
    assert (told, world.kept.is_saved, world.kept.trouble) == ([""], True, "")
    assert world.saved()["slaves"] == {"1": "cd" * 16}


def test_what_could_not_be_saved_is_trouble_until_it_is(world: World, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    world.lose_disk()
    world.kept.save(told.append)
    world.worker.close()
    assert "could not be saved" in told[0]
    world.retry()
    assert "could not be saved" in world.kept.trouble
    assert len(caplog.records) == 1, "told once"
    world.find_disk()
    world.retry()
    assert (world.kept.trouble, world.kept.is_saved) == ("", True)
    assert world.saved()["directory"] == "ab" * 16
    world.retry()
    assert len(told) == 1


def test_a_new_directory_is_saved_before_its_id_is_told(world: World) -> None:
    told: list[str] = []
    world.kept.save_first(told.append)
    assert told == []
    world.worker.close()
    assert told == [""]
    assert world.saved()["directory"] == "ab" * 16
    world.kept.save_first(told.append)
    assert told == ["", ""], "at once"


def test_a_directory_that_is_known_waits_for_nothing_else_that_could_not_be_saved(world: World) -> None:
    """A slave would follow nobody because somebody made it the master and that could not be kept."""
    told: list[str] = []
    world.kept.save(told.append)
    world.worker.close()
    world.folder.rename(world.folder.with_name("what it was"))
    world.lose_disk()
    world.kept.save(told.append)
    world.worker.close()
    assert "could not be saved" in told.pop()
    world.kept.save_first(told.append)
    assert told == ["", ""], "at once"


def test_a_slave_has_its_ticket_when_it_is_on_the_disk_who_it_is(world: World, tmp_path: Path) -> None:
    log = LittleStore(tmp_path / "store", clock=world.clock).store.log
    tickets = Ticketing("pair", log, lambda: "", world.kept, world.clock, AwaySlaves())
    wanted = FollowRequest(broker_name="pair", broker_id=1, directory="cd" * 16)
    told: list[object] = []
    world.lose_disk()
    tickets.issue(wanted, told.append)
    assert told == []
    world.worker.close()
    assert isinstance(told.pop(), OrbitError)
    tickets.issue(wanted, told.append)
    assert told == [], "nothing has changed since, and still it is not saved"
    world.find_disk()
    world.worker.close()
    assert isinstance(told.pop(), FollowAnswer)
    assert (world.saved()["slaves"], world.saved()["epochs"]) == ({"1": "cd" * 16}, [[1, 0]])
    tickets.issue(wanted, told.append)
    assert isinstance(told.pop(), FollowAnswer), "at once: it is known"


def test_a_slave_is_forgotten_when_that_is_on_the_disk(world: World, tmp_path: Path) -> None:
    log = LittleStore(tmp_path / "store", clock=world.clock).store.log
    world.kept.state.slaves = {1: "cd" * 16}
    tickets = Ticketing("pair", log, lambda: "", world.kept, world.clock, AwaySlaves())
    world.worker.close()
    told: list[object] = []
    tickets.forget(2, told.append)
    assert told.pop() is False
    tickets.forget(1, told.append)
    assert told == []
    world.worker.close()
    assert told == [True]
    assert world.saved()["slaves"] == {}
