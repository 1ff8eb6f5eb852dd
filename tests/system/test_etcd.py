"""etcd itself as the engine of groups: raced for, killed, frozen, put back, with a password and over TLS."""

from __future__ import annotations

import asyncio
import shutil
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from examples.order_timeout_group.etcd import MISSING, etcd_of_the_wheel, installed_etcd
from tests.interop.rig.toolchain import Missing, debian_etcd
from tests.worlds.certificates import Authority
from tests.worlds.etcd_process import EtcdCluster, TlsFiles

from orbitmq.replication.engine_address import parse_engine
from orbitmq.replication.view import View, first_view
from orbitmq.server.replication.engines.etcd import EtcdEngine
from orbitmq.server.replication.engines.etcd_gateway import EtcdGateway
from orbitmq.server.replication.engines.group_engine import EngineError, Held, MemberPlace

VIEW = first_view("a", ["b", "c"])
PLACE = MemberPlace("b", "10.0.0.2:10911", "10.0.0.2:10912", "ab" * 16, "1.0", claim="life")
CHANGES = 100
GOES_ON_S = 30
"""An etcd that lost its leader has another one long before."""

Answer = TypeVar("Answer")


def next_view(view: View) -> View:
    return View(
        epoch=view.epoch, serial=view.serial + 1, leader="", claim="", in_sync=view.in_sync, learners=view.learners
    )


@asynccontextmanager
async def engine_at(url: str, password_file: str = "") -> AsyncIterator[EtcdEngine]:
    address = parse_engine(url)
    assert address is not None
    engine = EtcdEngine(EtcdGateway(address, password_file))
    try:
        yield engine
    finally:
        await engine.aclose()


async def in_time(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Asked again until it is answered."""
    async with asyncio.timeout(GOES_ON_S):
        while True:
            try:
                return await ask()
            except EngineError:
                await asyncio.sleep(0.1)


@pytest.fixture(scope="module", params=["Debian's", "the wheel's"])
def program(request: pytest.FixtureRequest) -> str:
    """Two releases: an installed etcd, or the one that `make prepare` has from Debian, and that of the wheel."""
    found = etcd_of_the_wheel() if request.param == "the wheel's" else installed_etcd()
    if found is None and request.param == "the wheel's":
        pytest.skip(MISSING)
    try:
        return found or str(debian_etcd())
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def etcd(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """One member, shared: each test has a prefix of its own."""
    cluster = EtcdCluster(tmp_path_factory.mktemp("etcd"), program=program)
    yield cluster
    cluster.end()


@pytest.fixture
def own(program: str, tmp_path: Path) -> Iterator[Callable[..., EtcdCluster]]:
    """Starts one that the test may break."""
    started: list[EtcdCluster] = []

    def start(size: int = 1, tls: TlsFiles | None = None) -> EtcdCluster:
        folder = tmp_path / "etcd"
        folder.mkdir()
        started.append(EtcdCluster(folder, size, tls, program))
        return started[0]

    yield start
    for cluster in started:
        cluster.end()


async def test_a_view_is_made_once_changed_by_its_revision_and_kept(etcd: EtcdCluster) -> None:
    async with engine_at(etcd.url("kept")) as engine, engine_at(etcd.url("kept")) as other:
        assert await engine.read("g/1") == Held(None, 0)
        made = await engine.compare_and_set("g/1", 0, VIEW)
        assert made.view == VIEW
        assert await other.compare_and_set("g/1", 0, next_view(VIEW)) == made
        changed = await other.compare_and_set("g/1", made.revision, next_view(VIEW))
        assert (changed.view, changed.revision > made.revision) == (next_view(VIEW), True)
        assert await engine.compare_and_set("g/1", made.revision, VIEW.admit("b")) == changed
        assert await engine.read("g/1") == changed
        assert await engine.read("g") == Held(None, 0)


async def test_of_many_changes_at_once_none_is_lost(etcd: EtcdCluster) -> None:
    made: list[int] = []

    async def change() -> None:
        async with engine_at(etcd.url("raced")) as engine:
            held = await engine.read("g")
            while held.view is not None and held.view.serial <= CHANGES:
                wanted = View(epoch=0, serial=held.view.serial + 1, leader="a", claim=f"{id(engine)}", in_sync=("a",))
                held = await engine.compare_and_set("g", held.revision, wanted)
                if held.view == wanted:
                    made.append(wanted.serial)

    async with engine_at(etcd.url("raced")) as engine:
        await engine.compare_and_set("g", 0, first_view("a"))
        await asyncio.gather(*(change() for _ in range(4)))
        assert sorted(made) == list(range(2, CHANGES + 2))


async def test_who_is_present_is_named_and_a_watch_hears_of_all_changes(etcd: EtcdCluster) -> None:
    async with engine_at(etcd.url("present")) as engine, engine_at(etcd.url("present")) as other:
        watch = aiter(engine.watch("g"))

        async def hears() -> None:
            await asyncio.wait_for(anext(watch), GOES_ON_S)

        await hears()
        present = asyncio.ensure_future(other.keep_present("g", PLACE))
        await hears()
        assert await engine.places("g") == (PLACE,)
        assert await engine.places("h") == ()
        await other.compare_and_set("g", 0, VIEW)
        await hears()
        present.cancel()
        await asyncio.gather(present, return_exceptions=True)
        await hears()
        assert await engine.places("g") == ()


async def test_an_etcd_of_three_goes_on_without_one_that_is_killed_or_frozen(
    own: Callable[..., EtcdCluster], figure: Callable[[str], None]
) -> None:
    cluster = own(3)
    now = asyncio.get_running_loop().time
    async with engine_at(cluster.url()) as engine:
        held = await engine.compare_and_set("g", 0, VIEW)
        present = asyncio.ensure_future(engine.keep_present("g", PLACE))
        for harm in ("killed", "frozen"):
            for member in cluster.members:
                getattr(member, "kill" if harm == "killed" else "freeze")()
                began = now()
                wanted = next_view(held.view) if held.view is not None else VIEW
                revision = held.revision

                async def change(revision: int = revision, wanted: View = wanted) -> Held:
                    return await engine.compare_and_set("g", revision, wanted)

                held = await in_time(change)
                assert held.view == wanted
                figure(f"an etcd of three, {member.name} {harm}: the next change was made after {now() - began:.2f} s")
                if harm == "killed":
                    cluster.start([member])
                else:
                    member.go_on()
        for _ in range(300):  # a lease may end while its etcd stands still, and is taken anew
            if (places := await in_time(lambda: engine.places("g"))) == (PLACE,):
                break
            await asyncio.sleep(0.1)
        assert places == (PLACE,)
        present.cancel()


async def test_an_etcd_that_was_put_back_or_emptied_is_not_believed(own: Callable[..., EtcdCluster]) -> None:
    cluster = own()
    (member,) = cluster.members
    async with engine_at(cluster.url()) as engine:
        held = await engine.compare_and_set("g", 0, VIEW)
        member.kill()
        shutil.copytree(member.folder, kept := member.folder.with_name("kept"))
        cluster.start()
        for _ in range(3):
            assert held.view is not None
            held = await engine.compare_and_set("g", held.revision, next_view(held.view))
        for older in (kept, None):
            member.kill()
            shutil.rmtree(member.folder)
            if older is not None:
                shutil.copytree(older, member.folder)
            cluster.start()
            with pytest.raises(EngineError, match=r"has gone back|another etcd"):
                await engine.read("g")
            with pytest.raises(EngineError, match=r"has gone back|another etcd"):
                await engine.compare_and_set("g", held.revision, VIEW)
        async with engine_at(cluster.url()) as anew:
            assert await anew.read("g") == Held(None, 0), "whoever has seen nothing cannot tell; its core can"


async def test_who_has_a_password_may_do_what_its_role_says(own: Callable[..., EtcdCluster], tmp_path: Path) -> None:
    cluster = own()
    (member,) = cluster.members
    start, end = (b64encode(key).decode() for key in (b"mine/", b"mine0"))
    member.post("/v3/auth/user/add", {"name": "root", "password": "r"})
    member.post("/v3/auth/user/add", {"name": "me", "password": "p"})
    member.post("/v3/auth/role/add", {"name": "mine"})
    permission = {"permType": "READWRITE", "key": start, "range_end": end}
    member.post("/v3/auth/role/grant", {"name": "mine", "perm": permission})
    member.post("/v3/auth/user/grant", {"user": "root", "role": "root"})
    member.post("/v3/auth/user/grant", {"user": "me", "role": "mine"})
    member.post("/v3/auth/enable", {})
    password = tmp_path / "password"
    password.write_text("p\n")
    async with engine_at(cluster.url("mine", "me"), str(password)) as engine:
        held = await engine.compare_and_set("g", 0, VIEW)
        present = asyncio.ensure_future(engine.keep_present("g", PLACE))
        watch = aiter(engine.watch("g"))
        await asyncio.wait_for(anext(watch), GOES_ON_S)
        member.kill()
        cluster_started = asyncio.get_running_loop().run_in_executor(None, start_with_password, cluster)
        await cluster_started
        assert await in_time(lambda: engine.read("g")) == held, "tokens do not outlive etcd"
        await asyncio.wait_for(anext(watch), GOES_ON_S)
        assert await in_time(lambda: engine.places("g")) == (PLACE,)
        present.cancel()
        await asyncio.gather(present, return_exceptions=True)
    async with engine_at(cluster.url("yours", "me"), str(password)) as engine:
        with pytest.raises(EngineError, match="permission denied"):
            await engine.read("g")
    password.write_text("wrong")
    async with engine_at(cluster.url("mine", "me"), str(password)) as engine:
        with pytest.raises(EngineError, match="authentication failed"):
            await engine.read("g")
    async with engine_at(cluster.url("mine")) as engine:
        with pytest.raises(EngineError, match="user name is empty"):
            await engine.read("g")


def start_with_password(cluster: EtcdCluster) -> None:
    (member,) = cluster.members
    member.start(f"{member.name}={member.peer_url}")


async def test_etcd_over_tls_is_believed_by_who_knows_its_authority(
    own: Callable[..., EtcdCluster], tmp_path: Path
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    its, ours = authority.issue("etcd"), authority.issue("broker")
    cluster = own(1, TlsFiles(str(its.cert), str(its.key), str(authority.file)))
    shown = f"cert={ours.cert}&key={ours.key}"
    async with engine_at(cluster.url(options=f"?ca={authority.file}&{shown}")) as engine:
        assert (await in_time(lambda: engine.compare_and_set("g", 0, VIEW))).view == VIEW
    async with engine_at(cluster.url(options=f"?ca={stranger.file}&{shown}")) as engine:
        with pytest.raises(EngineError, match="certificate verify failed"):
            await engine.read("g")
    async with engine_at(cluster.url(options=f"?ca={authority.file}")) as engine:
        with pytest.raises(EngineError):
            await engine.read("g")
    async with engine_at(cluster.url()) as engine:
        with pytest.raises(EngineError):
            await engine.read("g")
