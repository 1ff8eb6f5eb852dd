"""`orbitmq replica engine`: each endpoint is asked alone, and what brokers would not believe is no answer."""

from __future__ import annotations

import json
from collections.abc import Callable

from scripted_server import Ran
from tests.worlds.scripted_gateway import ScriptedGateway, header, http, pair

from orbitmq.cli.replicas.replica_engine import answers_of, members_of
from orbitmq.replication.engine_address import EngineAddress, parse_engine
from orbitmq.replication.view import first_view
from orbitmq.server.replication.engines.group_engine import MemberPlace
from orbitmq.server.replication.engines.kept_text import place_key, place_text, view_key, view_text

VIEW = first_view("a", ["b", "c"]).take_over("a", "life").admit("b")
PLACES = [MemberPlace(name, f"{name}:1", f"{name}:2", "ab" * 16, "1.0") for name in ("a", "c", "z")]


def at(*endpoints: str) -> EngineAddress:
    address = parse_engine(f"etcd://{','.join(endpoints)}")
    assert address is not None
    return address


async def test_every_endpoint_is_asked_and_another_etcd_is_noticed() -> None:
    async with (
        ScriptedGateway(lambda path, body: http({"header": header(5, cluster=7)})) as first,
        ScriptedGateway(lambda path, body: http("no", status=500)) as broken,
        ScriptedGateway(lambda path, body: http({"header": header(5, cluster=8)})) as other,
    ):
        endpoints = [gateway.endpoint for gateway in (first, broken, other)]
        rows = await answers_of(at(*endpoints), "")
    assert [(row["endpoint"], row["answers"]) for row in rows] == list(
        zip(endpoints, (True, False, False), strict=True)
    )
    assert rows[0]["ms"] is not None
    assert "HTTP 500" in rows[1]["note"]
    assert "another etcd" in rows[2]["note"]


async def test_members_of_a_group_are_shown_with_who_is_present() -> None:
    views = [pair(view_key("orbitmq", "g"), view_text("g", VIEW), 4)]
    places = [pair(place_key("orbitmq", "g", place.name), place_text("g", place), 4) for place in PLACES]

    def answer(path: str, body: dict[str, str]) -> bytes:
        return http({"header": header(), "kvs": places if "range_end" in body else views})

    async with ScriptedGateway(answer) as gateway:
        rows = await members_of(at(gateway.endpoint), "g", "")
    assert [(row["member"], row["role"], row["note"]) for row in rows] == [
        ("a", "leader", ""),
        ("b", "in sync", "not present"),
        ("c", "learner", ""),
        ("z", "no member", ""),
    ]


def test_an_engine_that_does_not_answer_is_a_finding(orbitmq: Callable[..., Ran]) -> None:
    ran = orbitmq("replica", "engine", "etcd://127.0.0.1:1/p", "--json")
    assert ran.code == 1
    (row,) = json.loads(ran.out)
    assert not row["answers"]
    assert "see that etcd runs" in row["note"]


def test_what_is_no_engine_says_what_to_write(orbitmq: Callable[..., Ran]) -> None:
    ran = orbitmq("replica", "engine", "etcd://me:secret@h")
    assert ran.code == 2
    assert "its own file" in ran.err
