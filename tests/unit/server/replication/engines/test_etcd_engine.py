"""etcd as an engine, against a gateway that answers as each test says.

What counts: an answer is believed whole or not at all, a question that nobody answered is an error, and never is what was known before
taken for an answer.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.worlds.scripted_gateway import Reply, ScriptedGateway, chunked, header, http, pair

from orbitmq.replication.engine_address import parse_engine
from orbitmq.replication.view import first_view
from orbitmq.server.replication.engines.etcd import EtcdEngine
from orbitmq.server.replication.engines.etcd_gateway import EtcdGateway
from orbitmq.server.replication.engines.group_engine import EngineError, Held, MemberPlace
from orbitmq.server.replication.engines.kept_text import place_key, place_text, view_key, view_text

GROUP = "g"
KEY = view_key("orbitmq", GROUP)
VIEW = first_view("a", ["b"]).take_over("a", "life")
NEXT = VIEW.add_learner("c")
PLACE = MemberPlace("b", "h:1", "h:2", "ab" * 16, "1.0")


def ranged(*kvs: dict[str, str], revision: int = 5, cluster: int = 77) -> bytes:
    return http({"header": header(revision, cluster), "kvs": list(kvs), "count": str(len(kvs))})


def kept(view: Any = VIEW, revision: int = 4, value: bytes | None = None) -> dict[str, str]:
    return pair(KEY, view_text(GROUP, view) if value is None else value, revision)


def txn(*kvs: dict[str, str], succeeded: bool = False, revision: int = 5) -> bytes:
    put = [{"response_put": {"header": {"revision": "5"}}}] if succeeded else []
    read = {"response_range": {"header": {}, "kvs": list(kvs)}}
    return http({"header": header(revision), "succeeded": succeeded, "responses": [*put, read]})


def replies(*given: Reply) -> Callable[[str, Any], Reply]:
    """One after the other; the last one again and again."""
    left = list(given)
    return lambda path, body: left.pop(0) if len(left) > 1 else left[0]


@asynccontextmanager
async def engine_of(
    *gateways: ScriptedGateway, user: str = "", password_file: str = "", question_ms: int = 500
) -> AsyncIterator[EtcdEngine]:
    endpoints = ",".join(gateway.endpoint for gateway in gateways)
    address = parse_engine(f"etcd://{user}{'@' if user else ''}{endpoints}")
    assert address is not None
    engine = EtcdEngine(EtcdGateway(address, password_file, question_ms))
    try:
        yield engine
    finally:
        await engine.aclose()


@asynccontextmanager
async def one(*given: Reply) -> AsyncIterator[tuple[EtcdEngine, ScriptedGateway]]:
    async with ScriptedGateway(replies(*given)) as gateway, engine_of(gateway) as engine:
        yield engine, gateway


# --- what is believed -------------------------------------------------------------------------------------------------


async def test_a_view_is_read_with_its_revision_and_by_no_cache() -> None:
    async with one(ranged(kept())) as (engine, gateway):
        assert await engine.read(GROUP) == Held(VIEW, 4)
        assert gateway.asked[0][1]["serializable"] is False


async def test_questions_one_after_the_other_share_a_connection() -> None:
    async with one(ranged(kept())) as (engine, gateway):
        for _ in range(3):
            await engine.read(GROUP)
        assert gateway.connections == 1


async def test_an_engine_that_knows_nothing_of_a_group_says_so() -> None:
    async with one(http({"header": header(1)})) as (engine, _):
        assert await engine.read(GROUP) == Held(None, 0)


async def test_a_change_names_revision_and_text_that_it_is_made_to() -> None:
    answers = [ranged(kept()), txn(kept(NEXT, 5), succeeded=True)]
    async with one(*answers) as (engine, gateway):
        held = await engine.read(GROUP)
        assert await engine.compare_and_set(GROUP, held.revision, NEXT) == Held(NEXT, 5)
        compared = gateway.asked[1][1]["compare"]
        assert compared[0]["mod_revision"] == "4"
        assert b64decode(compared[1]["value"]) == view_text(GROUP, VIEW)


async def test_a_change_that_was_not_made_tells_what_is_held() -> None:
    async with one(ranged(kept()), txn(kept(NEXT, 5))) as (engine, _):
        await engine.read(GROUP)
        assert await engine.compare_and_set(GROUP, 4, VIEW.drop("b") if VIEW.may_drop("b") else VIEW) == Held(NEXT, 5)


async def test_a_change_to_a_revision_that_was_never_read_is_not_asked_for() -> None:
    async with one(ranged(kept())) as (engine, gateway):
        assert await engine.compare_and_set(GROUP, 3, NEXT) == Held(VIEW, 4)
        assert [path for path, *_ in gateway.asked] == ["/v3/kv/range"]


GARBAGE = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "nothing at all": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "a head without an end": b"HTTP/1.1 200 OK\r\n" + b"X-More: " + b"x" * 40_000,
    "half a body": http("{}", length=500),
    "a body that is too long": http(b"x" * 300_000),
    "an unending body": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 300_000,
    "no JSON": http("<html>sign in</html>"),
    "another JSON": http([]),
    "no header": http({"kvs": []}),
    "a revision that is a number": http({"header": {"cluster_id": "7", "revision": 5}}),
    "a revision that is none": http({"header": {"cluster_id": "7", "revision": "-5"}}),
    "a revision beyond 64 bits": http({"header": {"cluster_id": "7", "revision": "9" * 30}}),
    "deep nesting": http("[" * 100_000),
    "500": http("oops", status=500),
    "a redirect": http("", status=307, headers="Location: http://127.0.0.1:1/v3/kv/range\r\n"),
    "no leader": http({"error": "etcdserver: no leader", "code": 14}, status=503),
    "another key": ranged(pair("orbitmq/groups/h/view", view_text("h", VIEW), 4)),
    "two values": ranged(kept(), pair("x", b"", 1)),
    "no base64": ranged({"key": "?", "mod_revision": "4", "value": "?"}),
    "no view": ranged(kept(value=b"{}")),
    "a view of another format": ranged(kept(value=view_text(GROUP, VIEW).replace(b'"format":1', b'"format":2'))),
    "a view of another group": ranged(kept(value=view_text("h", VIEW))),
    "a revision of nothing": ranged(kept(), revision=0),
    "a view that has no revision": ranged(kept(revision=0)),
    "a view of a later revision": ranged(kept(revision=6)),
}


@pytest.mark.parametrize("said", GARBAGE.values(), ids=GARBAGE.keys())
async def test_what_cannot_be_believed_is_an_error_and_the_next_answer_counts(said: bytes) -> None:
    async with one(said, said, ranged(kept())) as (engine, gateway):
        with pytest.raises(EngineError) as raised:
            await engine.read(GROUP)
        assert gateway.endpoint in str(raised.value)
        gateway.answers = replies(ranged(kept()))
        assert await engine.read(GROUP) == Held(VIEW, 4)


@pytest.mark.parametrize(
    "said",
    [
        txn(kept(VIEW, 4), succeeded=True),
        txn(kept(NEXT, 4), succeeded=True),
        txn(succeeded=True),
        http({"header": header(), "succeeded": True}),
        http({"header": header(), "succeeded": "yes", "responses": []}),
        txn(kept(NEXT, 4)),
    ],
    ids=["another view", "no new revision", "no view", "no read", "no answer", "another text at the same revision"],
)
async def test_a_change_whose_answer_contradicts_itself_is_not_believed(said: bytes) -> None:
    async with one(ranged(kept()), said) as (engine, _):
        await engine.read(GROUP)
        with pytest.raises(EngineError):
            await engine.compare_and_set(GROUP, 4, NEXT)


async def test_an_older_revision_than_was_seen_is_not_believed() -> None:
    async with one(ranged(kept(), revision=9), ranged(kept(), revision=8), ranged(kept(), revision=9)) as (engine, _):
        await engine.read(GROUP)
        with pytest.raises(EngineError, match="has gone back") as raised:
            await engine.read(GROUP)
        assert "accept-loss" in str(raised.value.remedy)
        await engine.read(GROUP)


async def test_an_answer_that_came_late_is_no_older_than_its_question() -> None:
    release = asyncio.Event()

    async def late(path: str, body: Any) -> Reply:
        first = not gateway.asked[1:]
        if first:
            await release.wait()
        return ranged(kept(), revision=5 if first else 6)

    async with ScriptedGateway(late) as gateway, engine_of(gateway) as engine:
        first = asyncio.ensure_future(engine.read(GROUP))
        await gateway.until(lambda: bool(gateway.asked))
        assert await engine.read(GROUP) == Held(VIEW, 4)
        release.set()
        assert await first == Held(VIEW, 4), "it was asked before revision 6 was seen"


async def test_another_cluster_is_not_believed() -> None:
    async with one(ranged(kept()), ranged(kept(), cluster=78)) as (engine, _):
        await engine.read(GROUP)
        with pytest.raises(EngineError, match="cluster id is 78"):
            await engine.read(GROUP)


async def test_a_view_that_went_back_in_an_engine_that_went_on_is_told() -> None:
    """A member stops then, loudly: that is for its core to see."""
    async with one(ranged(kept(NEXT, 5)), ranged(kept(VIEW, 4), revision=20), ranged(revision=21)) as (engine, _):
        assert await engine.read(GROUP) == Held(NEXT, 5)
        assert await engine.read(GROUP) == Held(VIEW, 4)
        assert await engine.read(GROUP) == Held(None, 0)


async def test_a_revision_that_is_given_a_second_time_is_noticed() -> None:
    async with one(ranged(kept(VIEW, 5)), ranged(kept(NEXT, 5))) as (engine, _):
        await engine.read(GROUP)
        with pytest.raises(EngineError, match="another one at revision 5"):
            await engine.read(GROUP)


# --- several endpoints ------------------------------------------------------------------------------------------------


async def test_another_endpoint_answers_for_one_that_does_not_and_stays_the_first() -> None:
    async with (
        ScriptedGateway(replies(None)) as silent,
        ScriptedGateway(replies(ranged(kept()))) as good,
        engine_of(silent, good) as engine,
    ):
        assert await engine.read(GROUP) == Held(VIEW, 4)
        assert await engine.read(GROUP) == Held(VIEW, 4)
        assert (len(silent.asked), len(good.asked)) == (1, 2)


async def test_one_of_another_etcd_is_passed_over() -> None:
    async with (
        ScriptedGateway(replies(ranged(kept()), None)) as first,
        ScriptedGateway(replies(ranged(kept(), cluster=78))) as other,
        ScriptedGateway(replies(ranged(kept(NEXT, 6), revision=6))) as third,
        engine_of(first, other, third) as engine,
    ):
        assert await engine.read(GROUP) == Held(VIEW, 4)
        assert await engine.read(GROUP) == Held(NEXT, 6)


async def test_where_nobody_answers_all_are_named_within_the_time_of_one_question() -> None:
    async with (
        ScriptedGateway(replies(None)) as silent,
        ScriptedGateway(replies(http("no", status=500))) as broken,
        engine_of(silent, broken, question_ms=200) as engine,
    ):
        began = asyncio.get_running_loop().time()
        with pytest.raises(EngineError, match=r"no answer within .*HTTP 500") as raised:
            await engine.read(GROUP)
        assert asyncio.get_running_loop().time() - began < 5
        assert raised.value.remedy is not None
        assert silent.endpoint in raised.value.where


async def test_a_change_whose_answer_was_lost_is_seen_by_asking_again_elsewhere() -> None:
    """The first endpoint acted: at the second one the change finds itself made, and says so."""
    async with (
        ScriptedGateway(lambda path, body: ranged(kept()) if path.endswith("range") else None) as silent,
        ScriptedGateway(replies(txn(kept(NEXT, 5)))) as good,
        engine_of(silent, good) as engine,
    ):
        await engine.read(GROUP)
        assert await engine.compare_and_set(GROUP, 4, NEXT) == Held(NEXT, 5)


async def test_a_connection_that_ended_while_it_was_kept_is_made_anew() -> None:
    async with one(ranged(kept())) as (engine, gateway):
        await engine.read(GROUP)
        gateway.answers = replies(b"", ranged(kept()))
        assert await engine.read(GROUP) == Held(VIEW, 4)
        assert gateway.connections == 2


# --- who asks ---------------------------------------------------------------------------------------------------------

UNKNOWN_TOKEN = http({"error": "etcdserver: invalid auth token", "code": 16}, status=401)


async def test_a_token_is_asked_for_once_and_again_when_it_is_known_no_more(tmp_path: Path) -> None:
    known = {"first"}

    def answers(path: str, body: Any) -> Reply:
        if path.endswith("authenticate"):
            assert body == {"name": "me", "password": (tmp_path / "password").read_text().strip()}
            known.add(token := "first" if len(gateway.asked) == 1 else "second")
            return http({"header": header(0), "token": token})
        return ranged(kept()) if gateway.asked[-1][2] in known else UNKNOWN_TOKEN

    (tmp_path / "password").write_text("one\n")
    async with ScriptedGateway(answers) as gateway:
        async with engine_of(gateway, user="me", password_file=str(tmp_path / "password")) as engine:
            await engine.read(GROUP)
            await engine.read(GROUP)
            known.clear()
            (tmp_path / "password").write_text("two\n")
            assert await engine.read(GROUP) == Held(VIEW, 4)
        paths = [path.rpartition("/")[2] for path, *_ in gateway.asked]
        assert paths == ["authenticate", "range", "range", "range", "authenticate", "range"]


async def test_a_wrong_password_is_asked_for_once_in_a_question_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret")
    refused = http({"error": "etcdserver: authentication failed, invalid user ID or password", "code": 3}, status=400)
    async with (
        ScriptedGateway(replies(refused)) as gateway,
        engine_of(gateway, user="me", password_file=str(tmp_path / "password")) as engine,
    ):
        with pytest.raises(EngineError, match="authentication failed") as raised:
            await engine.read(GROUP)
        assert "replicationEnginePasswordFile" in str(raised.value)
        assert "secret" not in str(raised.value)
        with pytest.raises(EngineError, match="authentication failed"):
            await engine.read(GROUP)
        assert len(gateway.asked) == 1, "a wrong password costs etcd a lot, and is not tried again and again"


async def test_files_of_tls_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("no certificate")
    for file in (tmp_path / "absent.pem", tmp_path / "none.pem"):
        for option in ("ca", "cert"):
            address = parse_engine(f"etcd://127.0.0.1:1?{option}={file}")
            assert address is not None
            engine = EtcdEngine(EtcdGateway(address))
            with pytest.raises(EngineError, match=file.name):
                await engine.read(GROUP)


async def test_a_password_that_cannot_be_read_is_an_error_of_the_question(tmp_path: Path) -> None:
    async with (
        ScriptedGateway(replies(None)) as gateway,
        engine_of(gateway, user="me", password_file=str(tmp_path / "none")) as engine,
    ):
        with pytest.raises(EngineError, match="no password can be read"):
            await engine.read(GROUP)
        assert gateway.asked == []


async def test_who_is_asked_for_a_name_and_has_none_hears_what_to_do() -> None:
    async with one(http({"error": "etcdserver: user name is empty", "code": 3}, status=400)) as (engine, _):
        with pytest.raises(EngineError, match="user in replicationEngine"):
            await engine.read(GROUP)


# --- watches ----------------------------------------------------------------------------------------------------------

CREATED = {"result": {"header": header(), "created": True}}
EVENT = {"result": {"header": header(6), "events": [{"kv": kept()}]}}


async def heard(engine: EtcdEngine, times: int) -> None:
    watch = aiter(engine.watch(GROUP))
    for _ in range(times):
        await asyncio.wait_for(anext(watch), 10)


async def test_a_watch_is_heard_at_its_beginning_and_at_each_change() -> None:
    async with one(chunked(CREATED, EVENT, EVENT)) as (engine, gateway):
        await heard(engine, 3)
        assert b64decode(gateway.asked[0][1]["create_request"]["range_end"]) == b"orbitmq/groups/g0"


@pytest.mark.parametrize(
    "ends",
    [
        chunked({"result": {"header": header(), "created": True, "canceled": True, "cancel_reason": "denied"}}),
        chunked({"error": {"grpc_code": 14, "message": "no leader"}}),
        chunked({"result": {"header": header(cluster=9)}}),
        chunked("<html>"),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n80000\r\n" + b"x" * 0x80000,
        http("no", status=500),
        b"",
    ],
    ids=["canceled", "an error", "another etcd", "garbage", "too long", "500", "closed"],
)
async def test_a_watch_that_cannot_go_on_is_made_anew(ends: bytes) -> None:
    async with one(ranged(), ends, chunked(CREATED, EVENT)) as (engine, gateway):
        await engine.read(GROUP)
        await heard(engine, 2)
        asked = [path for path, *_ in gateway.asked]  # a member of another test may ask too: its engine had this port
        assert (asked[0], asked.count("/v3/watch")) == ("/v3/kv/range", 2)


async def test_a_watch_leaves_an_endpoint_that_answers_no_questions() -> None:
    def frozen(path: str, body: Any) -> Reply:
        return chunked(CREATED) if path == "/v3/watch" else None

    def good(path: str, body: Any) -> Reply:
        return chunked(CREATED) if path == "/v3/watch" else ranged(kept())

    async with ScriptedGateway(frozen) as first, ScriptedGateway(good) as second, engine_of(first, second) as engine:
        watch = aiter(engine.watch(GROUP))
        await anext(watch)
        await engine.read(GROUP)
        await asyncio.wait_for(anext(watch), 10)
        assert "/v3/watch" in [path for path, *_ in second.asked]


# --- presence ---------------------------------------------------------------------------------------------------------


async def test_a_member_is_named_under_a_lease_and_no_more_when_it_ends() -> None:
    def answers(path: str, body: Any) -> Reply:
        return http({"header": header(), "ID": "12", "TTL": "10"} if path.endswith("grant") else {"header": header()})

    async with ScriptedGateway(answers) as gateway, engine_of(gateway) as engine:
        present = asyncio.ensure_future(engine.keep_present(GROUP, PLACE))
        await gateway.until(lambda: len(gateway.asked) >= 2)
        present.cancel()
        await asyncio.gather(present, return_exceptions=True)
        (_, put, _), (revoked, ended, _) = gateway.asked[1:]
        assert put["lease"] == "12"
        assert b64decode(put["value"]) == place_text(GROUP, PLACE)
        assert (revoked, ended) == ("/v3/lease/revoke", {"ID": "12"})


@pytest.mark.parametrize("lost", ["lease", "place"])
async def test_what_the_engine_lost_of_a_member_is_told_to_it_again(lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.server.replication.engines.etcd.PRESENCE_RENEW_MS", 1)

    def answers(path: str, body: Any) -> Reply:
        if path.endswith("keepalive"):
            lives = {} if lost == "lease" else {"TTL": "9"}
            return chunked({"result": {"header": header(), "ID": "12"} | lives}) + b"0\r\n\r\n"
        return http({"header": header(), "ID": "12", "TTL": "10"})

    async with ScriptedGateway(answers) as gateway, engine_of(gateway) as engine:
        present = asyncio.ensure_future(engine.keep_present(GROUP, PLACE))
        await gateway.until(lambda: sum(path.endswith("put") for path, *_ in gateway.asked) >= 2)
        present.cancel()
        await asyncio.gather(present, return_exceptions=True)


async def test_presence_goes_on_when_the_engine_does_not_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.server.replication.engines.etcd.ENGINE_PAUSE_MS", 1)
    monkeypatch.setattr("orbitmq.server.replication.engines.etcd.PRESENCE_RENEW_MS", 1)
    caplog.set_level("INFO", "orbitmq.replication")
    async with one(http("no", status=500)) as (engine, gateway):
        present = asyncio.ensure_future(engine.keep_present(GROUP, PLACE))
        await gateway.until(lambda: len(gateway.asked) >= 3)
        gateway.answers = lambda path, body: http({"header": header(), "ID": "12", "TTL": "10"})
        await gateway.until(lambda: "find this one again" in caplog.text)
        present.cancel()
        await asyncio.gather(present, return_exceptions=True)
    assert caplog.text.count("trying again") == 1, "an outage is told once"


async def test_a_place_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    good = pair(place_key("orbitmq", GROUP, "b"), place_text(GROUP, PLACE), 3)
    bad = pair(place_key("orbitmq", GROUP, "c"), place_text(GROUP, PLACE), 3)
    async with one(ranged(bad, good)) as (engine, _):
        for _ in range(2):
            assert await engine.places(GROUP) == (PLACE,)
    assert caplog.text.count("the place of b") == 1


async def test_an_engine_that_is_closed_while_it_is_asked_connects_no_more() -> None:
    async with ScriptedGateway(replies(None)) as first, ScriptedGateway(replies(None)) as second:
        async with engine_of(first, second, question_ms=60_000) as engine:
            asked = asyncio.ensure_future(engine.read(GROUP))
            await first.until(lambda: bool(first.asked))
        with pytest.raises(EngineError):
            await asked
        assert second.connections == 0


async def test_a_closed_engine_answers_nothing_and_its_watch_ends() -> None:
    async with one(chunked(CREATED)) as (engine, _):
        watch = aiter(engine.watch(GROUP))
        await anext(watch)
        await engine.aclose()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(watch), 10)
        with pytest.raises(EngineError, match="it is closed"):
            await engine.read(GROUP)
