"""The engine in memory keeps the contract that drivers are written to."""

from __future__ import annotations

import asyncio

import pytest
from tests.worlds.engine_in_memory import EngineContents, MemoryEngine

from orbitmq.replication.view import first_view
from orbitmq.server.replication.engines.group_engine import EngineError, Held, MemberPlace

VIEW = first_view("a", ["b"])
PLACE = MemberPlace("a", "127.0.0.1:1", "127.0.0.1:2", "0" * 32, "1")


async def test_only_one_of_two_changes_to_a_revision_is_made() -> None:
    contents = EngineContents()
    one, other = MemoryEngine(contents), MemoryEngine(contents)
    assert await one.read("g") == Held(None, 0)
    put = await one.compare_and_set("g", 0, VIEW)
    assert put == Held(VIEW, 1)
    assert await other.compare_and_set("g", 0, VIEW.take_over("a", "x")) == put, (
        "what is held, and not what was asked for"
    )


async def test_a_lost_answer_may_have_acted() -> None:
    engine = MemoryEngine(EngineContents())
    engine.loses_answers = True
    with pytest.raises(EngineError):
        await engine.compare_and_set("g", 0, VIEW)
    engine.loses_answers = False
    assert (await engine.read("g")).view == VIEW


async def test_a_watch_says_once_at_the_start_and_once_after_changes() -> None:
    engine = MemoryEngine(EngineContents())
    watch = aiter(engine.watch("g"))
    await anext(watch)
    waits = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    present = asyncio.ensure_future(engine.keep_present("g", PLACE))
    await waits
    assert await engine.places("g") == (PLACE,)
    present.cancel()
    await asyncio.gather(present, return_exceptions=True)
    assert await engine.places("g") == ()
