"""`orbitmq doctor --engine`: endpoints one by one, the password's file, members of a group and their clocks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.worlds.scripted_gateway import ScriptedGateway, header, http, pair

from orbitmq.cli.doctor import doctor_engine
from orbitmq.cli.doctor.doctor_checks import Level, Result, copies
from orbitmq.cli.doctor.doctor_engine import endpoints, members, password
from orbitmq.replication.engine_address import EngineAddress, parse_engine
from orbitmq.replication.kept_state import REPLICATION_FILE, KeptMember, KeptState
from orbitmq.replication.view import first_view
from orbitmq.server.replication.engines.group_engine import MemberPlace
from orbitmq.server.replication.engines.kept_text import place_key, place_text, view_key, view_text

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

VIEW = first_view("a", ["b", "c"]).take_over("a", "life").admit("b")
PLACES = [MemberPlace(name, f"{name}:1", f"{name}:2", "ab" * 16, "1.0") for name in ("a", "b")]


def at(*places: str) -> EngineAddress:
    address = parse_engine(f"etcd://{','.join(places)}")
    assert address is not None
    return address


def levels(results: list[Result]) -> dict[str, Level]:
    return {result.check: result.level for result in results}


async def test_each_endpoint_is_told_with_its_release_and_what_is_wrong_with_it() -> None:
    def well(path: str, body: object) -> bytes:
        status = {"version": "3.5.1", "dbSize": "20480", "leader": "7"} if path.endswith("status") else {}
        return http({"header": header(9), **status})

    def full(path: str, body: object) -> bytes:
        status = {"version": "3.5.1", "errors": ["memberID:7 alarm:NOSPACE"]} if path.endswith("status") else {}
        return http({"header": header(9), **status})

    async with ScriptedGateway(well) as first, ScriptedGateway(full) as second:
        places = first.endpoint, second.endpoint, "127.0.0.1:1"
        results = await endpoints(at(*places), "")
    alone = await endpoints(at("127.0.0.1:1"), "")
    assert levels(results) == {
        f"engine {places[0]}": Level.OK,
        f"engine {places[1]}": Level.WARN,
        f"engine {places[2]}": Level.WARN,  # members go on with the others
    }
    assert "etcd 3.5.1, revision 9, 20 KiB" in results[0].found
    assert "NOSPACE" in results[1].found
    assert [result.level for result in alone] == [Level.FAIL]
    assert alone[0].remedy


async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As etcd without TLS does where a handshake of TLS begins."""
    await reader.read(1)
    writer.close()


async def says_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


@pytest.mark.parametrize("server", [closes, says_http])
async def test_an_engine_without_tls_that_is_asked_over_tls_is_told_as_one(server: Serve) -> None:
    async with await asyncio.start_server(server, "127.0.0.1", 0) as listening:
        place = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        address = parse_engine(f"etcd://{place}?tls=true")
        assert address is not None
        (found,) = await endpoints(address, "")
    assert found == Result(
        Level.FAIL,
        f"engine {place}",
        "it refuses the handshake of TLS, as a server without TLS does",
        "ask it without tls=true, or give it a certificate",
    )


async def test_members_are_told_with_their_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"a:1": {"orbitmqReplicaClockOff": "0"}, "b:1": {"orbitmqReplicaClockOff": "-900"}}

    async def facts(address: str) -> dict[str, str]:
        await asyncio.sleep(0)
        return told[address]

    monkeypatch.setattr(doctor_engine, "facts_of", facts)
    views = [pair(view_key("orbitmq", "g"), view_text("g", VIEW), 4)]
    places = [pair(place_key("orbitmq", "g", place.name), place_text("g", place), 4) for place in PLACES]

    def answer(path: str, body: dict[str, str]) -> bytes:
        return http({"header": header(), "kvs": places if "range_end" in body else views})

    async with ScriptedGateway(answer) as gateway:
        results = await members(at(gateway.endpoint), "g", "")
    assert levels(results) == {
        "group g": Level.OK, "member a": Level.OK, "member b": Level.WARN, "member c": Level.WARN,
    }  # fmt: skip
    assert results[0].found == "epoch 1, a leads, in sync: a, b"
    assert "-900 ms off" in results[2].found
    assert results[3].found == "not present"


def test_the_file_of_the_password_is_nobody_elses(tmp_path: Path) -> None:
    file = tmp_path / "password"
    assert password("")[0].level is password(str(file))[0].level is Level.FAIL
    file.write_text("secret")
    file.chmod(0o644)
    (found,) = password(str(file))
    assert (found.level, found.remedy) == (Level.WARN, f"chmod 600 {file}")
    file.chmod(0o600)
    assert password(str(file))[0].level is Level.OK


def test_a_directory_says_of_which_group_it_is_a_member(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    state = KeptState("ab" * 16, member=KeptMember("orders", "b", epoch=5))
    (tmp_path / "config" / REPLICATION_FILE).write_text(json.dumps(state.table()))
    (found,) = copies(tmp_path)
    assert found.level is Level.OK
    assert "member b of group orders, in epoch 5" in found.found
