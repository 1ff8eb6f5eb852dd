"""Who is taken as a copy beside a far tier, when it goes on, and what a slave is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

pytest.importorskip("pyarrow", reason="the far tier's files are written with pyarrow")

from tests.worlds.little_far import DAY_MS, LittleFar
from tests.worlds.little_store import SteppedWorker

from orbitmq.errors import OrbitError
from orbitmq.limits.replication import COPIES_MAX
from orbitmq.protocol.remoting.replication_bodies import FollowAnswer, FollowRequest
from orbitmq.replication.kept_state import REPLICATION_FILE, FarStorage, read_state
from orbitmq.replication.ticket_office import FollowRefused
from orbitmq.server.replication.far_copies import UNMARKED, FarCopies
from orbitmq.server.replication.kept_file import KeptFile
from orbitmq.server.replication.shared_storage import FarStateUntaken
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import OsFiles
from orbitmq.timing.far.arrow_tier import ArrowTier
from orbitmq.timing.far.tier import FarTierError, FarUnreachableError

T = TypeVar("T")


class Side:
    """A broker of the pair, with its store, what it keeps of copies, and its far tier."""

    def __init__(self, root: Path, name: str, place: Path | None, *, leads: bool) -> None:
        far_place = place or root / name / "far"
        self.tier = ArrowTier(str(far_place))
        self.far = LittleFar(root / name, self.tier, leads=False)
        self.worker = SteppedWorker()
        file = ConfigFile(OsFiles(), root / name / "config" / REPLICATION_FILE)
        directory = (name.encode().hex() * 32)[:32]
        self.kept = KeptFile(file, directory, self.worker, self.far.store.deadlines, self.far.clock)
        self.copies = FarCopies(self.far.far, str(place or ""), self.far.store, self.kept, self.worker)
        self.connections: list[Any] = []
        if leads:
            self.copies.lead(cast(Any, SimpleNamespace(connections=self.connections)), copies_follow=False)
            self.far.lead()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Raises what it raises."""

        async def stepped() -> T:
            task = asyncio.get_running_loop().create_task(work)
            while not task.done():
                await asyncio.sleep(0)
                self.far.clock.advance(1)
                self.far.step()
                self.worker.step()
            return task.result()

        return asyncio.run(stepped())

    def asked(self, far: str, *, slave_id: int = 1, end: int = 0) -> FollowAnswer | OrbitError:
        """What a slave that wants a ticket hears of the tier; it gets one where nothing is against it."""

        async def asked() -> FollowAnswer | OrbitError:
            told: asyncio.Future[FollowAnswer | OrbitError] = asyncio.get_running_loop().create_future()
            wanted = FollowRequest(broker_name="pair", broker_id=slave_id, directory="cd" * 16, end=end, far=far)
            self.copies.prepare(wanted, told.set_result)
            return await told

        answer = self.run(asked())
        if isinstance(answer, FollowAnswer):
            self.kept.state.slaves[slave_id] = "cd" * 16
            self.copies.granted(slave_id, answer, FollowAnswer())
        return answer

    def send(self) -> None:
        self.far.send(self.far.clock.now_ms() + 10 * DAY_MS)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "shared"


@pytest.fixture
def master(tmp_path: Path, place: Path) -> Side:
    return Side(tmp_path, "master", place, leads=True)


@pytest.fixture
def slave(tmp_path: Path, place: Path) -> Side:
    return Side(tmp_path, "slave", place, leads=False)


def refusal(answer: FollowAnswer | OrbitError) -> str:
    assert isinstance(answer, FollowRefused)
    return str(answer)


def joined(master: Side, slave: Side) -> FollowAnswer:
    """The slave asks until it is taken."""
    for _ in range(3):
        answer = master.asked(slave.run(slave.copies.claim()))
        if isinstance(answer, FollowAnswer):
            slave.run(slave.copies.take(answer))
            return answer
    raise answer


def test_a_slave_that_asks_again_while_the_storage_is_being_marked_hears_of_the_same_mark(master: Side) -> None:
    """The helper of a busy machine takes longer to begin than a slave waits for an answer."""

    async def twice() -> list[FollowAnswer | OrbitError]:
        told = [asyncio.get_running_loop().create_future() for _ in range(2)]
        for one in told:
            wanted = FollowRequest(broker_name="pair", broker_id=1, directory="cd" * 16, far=UNMARKED)
            master.copies.prepare(wanted, one.set_result)
            await asyncio.sleep(0)
        return list(await asyncio.gather(*told))

    for answer in master.run(twice()):
        assert "bore no mark when it looked" in refusal(answer), "it may have given up waiting for either"
    assert master.kept.state.far.mark == master.tier.mark("") != ""


def test_the_first_slave_is_sent_to_look_for_the_mark_and_is_taken_then(master: Side, slave: Side) -> None:
    master.send()
    assert slave.run(slave.copies.claim()) == UNMARKED
    assert "bore no mark when it looked" in refusal(master.asked(UNMARKED))
    answer = joined(master, slave)
    assert answer.far == slave.kept.state.far.mark == master.kept.state.far.mark == slave.tier.mark("")
    assert master.far.far.takes_messages
    assert slave.far.far.counts().by_topic == master.far.far.counts().by_topic == {"Topic": 1}


def test_what_is_kept_outlives_the_process(master: Side, slave: Side) -> None:
    joined(master, slave)
    for side, sharers, followed in ((master, [1], False), (slave, [], True)):
        side.worker.close()
        again = read_state(side.kept.state.table(), "")
        assert again.far == FarStorage(master.tier.mark(""), again.far.url, sharers, followed)


def test_two_spellings_of_one_place_are_one(tmp_path: Path, master: Side, place: Path) -> None:
    master.send()
    joined(master, Side(tmp_path, "slave", tmp_path / "slave" / ".." / "shared", leads=False))


def test_another_storage_is_refused_while_messages_wait_and_told_what_to_do(tmp_path: Path, master: Side) -> None:
    master.send()
    other = Side(tmp_path, "slave", tmp_path / "other", leads=False)
    refusal(master.asked(other.run(other.copies.claim())))
    assert "give it the master's timerFarUrl" in refusal(master.asked(other.run(other.copies.claim())))
    other.tier.mark("of others")
    assert "give it the master's timerFarUrl" in refusal(master.asked(other.run(other.copies.claim())))
    assert master.far.far.takes_messages


@pytest.mark.parametrize("far", ["", "of others"])
def test_without_messages_it_is_taken_and_the_tier_takes_nothing_in(master: Side, slave: Side, far: str) -> None:
    joined(master, slave)
    assert isinstance(master.asked(far, slave_id=2), FollowAnswer)
    assert not master.far.far.takes_messages
    del master.kept.state.slaves[2]
    master.copies.tell()
    assert master.far.far.takes_messages, "it was forgotten"


def test_one_without_a_ticket_switches_the_tier_off_and_is_refused_while_messages_wait(
    master: Side, slave: Side
) -> None:
    joined(master, slave)
    assert master.copies.why_not_slave(None) == ""
    master.connections.append(SimpleNamespace(slave="10.0.0.9:40000", address="10.0.0.9:40000", copy=object()))
    master.copies.tell()
    assert not master.far.far.takes_messages
    master.connections.clear()
    master.send()
    assert "timer far restore" in master.copies.why_not_slave(None)
    assert master.copies.why_not_slave(1) == ""
    assert "timer far restore" in master.copies.why_not_slave(2)


def test_a_master_that_never_had_a_slave_that_shares_takes_nothing_in_beside_copies(master: Side) -> None:
    assert master.far.far.takes_messages
    master.copies.tell()
    assert not master.far.far.takes_messages


def test_storage_of_another_group_is_refused(tmp_path: Path, master: Side, slave: Side) -> None:
    joined(master, slave)
    other = Side(tmp_path, "other", tmp_path / "shared", leads=True)
    assert "of another group" in refusal(other.asked(master.tier.mark("")))
    assert other.kept.state.far == FarStorage()


def test_a_master_that_lost_what_it_kept_finds_its_mark_where_the_state_beside_the_files_is_its_own(
    master: Side, slave: Side
) -> None:
    master.send()
    mark = joined(master, slave).far
    master.kept.state.far = FarStorage()
    answer = master.asked(mark, end=1)
    assert isinstance(answer, FollowAnswer)
    assert answer.far == mark


def test_only_a_slave_without_a_log_gets_the_state(master: Side, slave: Side) -> None:
    master.send()
    assert joined(master, slave).far_serial > 0
    answer = master.asked(master.tier.mark(""), end=1)
    assert isinstance(answer, FollowAnswer)
    assert (answer.far_serial, answer.far) == (0, master.tier.mark(""))


def test_a_state_that_somebody_else_wrote_is_not_taken(master: Side, slave: Side) -> None:
    master.send()
    refusal(master.asked(UNMARKED))
    answer = master.asked(master.tier.mark(""))
    assert isinstance(answer, FollowAnswer)
    answer.far_store = "another"
    with pytest.raises(FarStateUntaken, match="is not the one that the master put there"):
        slave.run(slave.copies.take(answer))
    slave.tier.publish(b"torn")
    with pytest.raises(FarStateUntaken, match="fails its check"):
        slave.run(slave.copies.take(answer))
    assert slave.far.far.counts().pending == 0
    assert not slave.kept.state.far.mark


class Away(ArrowTier):
    def mark(self, wanted: str) -> str:
        raise FarUnreachableError("the network is gone")


def away(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side.tier, "mark", Away("").mark)


def test_storage_that_is_away_keeps_a_new_slave_waiting_and_an_old_one_following(
    master: Side, slave: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        away(slave, patch)
        with pytest.raises(FarTierError, match="the network is gone"):
            slave.run(slave.copies.claim())
    master.send()
    mark = joined(master, slave).far
    away(slave, monkeypatch)
    away(master, monkeypatch)
    assert slave.run(slave.copies.claim()) == mark
    assert isinstance(master.asked(mark, end=1), FollowAnswer)
    assert "the network is gone" in refusal(master.asked(mark)), "one without a log needs the state"


def test_copies_have_what_all_that_are_known_have_reported(master: Side, slave: Side) -> None:
    joined(master, slave)
    have: Callable[[int], bool] = master.copies._copies_have
    assert not have(0), "it does not follow"
    link = SimpleNamespace(acknowledged=100)
    master.connections.append(SimpleNamespace(slave="1", address="a", copy=object(), link=link))
    assert (have(100), have(101)) == (True, False)
    master.kept.state.slaves[2] = "ef" * 16
    assert not have(100)


def test_a_broker_without_messages_there_may_move_its_tier(tmp_path: Path, master: Side, slave: Side) -> None:
    joined(master, slave)
    again = FarCopies(master.far.far, str(tmp_path / "moved"), master.far.store, master.kept, master.worker)
    assert (again.is_shared, master.kept.state.far) == (False, FarStorage())


def test_a_slave_with_files_does_not_forget_where_they_lie(master: Side, slave: Side) -> None:
    master.send()
    master.far.advance(11 * 60_000)
    mark = joined(master, slave).far
    assert slave.far.far.held.files.by_name
    slave.run(slave.copies.take(FollowAnswer()))
    assert slave.kept.state.far.mark == mark


def test_who_asks_again_and_again_is_refused_beyond_a_number(master: Side, slave: Side) -> None:
    master.send()
    mark = joined(master, slave).far

    async def flood() -> list[FollowAnswer | OrbitError]:
        told: list[asyncio.Future[FollowAnswer | OrbitError]] = []
        for number in range(COPIES_MAX + 1):
            told.append(asyncio.get_running_loop().create_future())
            wanted = FollowRequest(broker_name="pair", broker_id=number + 1, directory="cd" * 16, far=mark)
            master.copies.prepare(wanted, told[-1].set_result)
        return await asyncio.gather(*told)

    *others, last = master.run(flood())
    assert "ask again" in refusal(last)
    assert all(isinstance(one, FollowAnswer) for one in others)
