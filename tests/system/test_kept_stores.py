"""Stores that earlier versions of orbitmq wrote open in this one, and everything in them goes on as if nothing had happened."""

from __future__ import annotations

import json
import logging
import lzma
import sys
import tarfile
import zlib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import orbitmq
from orbitmq.errors import OrbitError
from orbitmq.store.mark import MARK_FILE, SLOT_BYTES
from orbitmq.testing import EmbeddedBroker

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.vectors.record_own_store import GROUP, OWN, consume, describe, scope

KEPT = sorted(path.name.removesuffix(".expected.json.xz") for path in OWN.glob("*.expected.json.xz"))
STORES = [f"{name}{ending}" for name in KEPT for ending in ("", "-killed")]
HOURLY_FOR = timedelta(hours=30)
A_LATER_VERSION = 9


def unpacked(name: str, into: Path) -> tuple[Path, dict[str, Any]]:
    with tarfile.open(OWN / f"{name}.tar.xz") as archive:
        archive.extractall(into, filter="data")
    expected: dict[str, Any] = json.loads(
        lzma.decompress((OWN / f"{name.removesuffix('-killed')}.expected.json.xz").read_bytes())
    )
    return into / name, expected


def opened(data: Path, expected: dict[str, Any]) -> EmbeddedBroker:
    return EmbeddedBroker(now=datetime.fromisoformat(expected["now"]), data=data, settings=expected["settings"])


def test_stores_are_kept() -> None:
    assert KEPT


@pytest.mark.parametrize("name", STORES)
async def test_everything_in_it_goes_on(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, expected = unpacked(name, tmp_path)
    async with opened(data, expected) as broker:
        assert errors(caplog) == []  # nothing that earlier versions wrote is taken for damage
        await it_holds_what_it_held_and_its_groups_and_writers_go_on(broker, expected)
        await what_was_recalled_stays_so_and_all_else_comes_once_and_in_time(broker, expected)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


async def it_holds_what_it_held_and_its_groups_and_writers_go_on(
    broker: EmbeddedBroker, expected: dict[str, Any]
) -> None:
    async with broker.connect() as mq:
        found = await describe(broker)
        assert found == {part: expected[part] for part in found}
        orders = len(expected["messages"]["orders"])
        assert await progress(mq) == expected["consumed"]
        await consume(mq, orders - expected["consumed"])
        assert await progress(mq) == orders
        for number in range(len(expected["once"])):  # a repeat is recognised
            await mq.send("once", b"again", once=scope(number))
        assert [message.body.hex() for message in await broker.messages("once")] == expected["messages"]["once"]


async def progress(mq: orbitmq.Client) -> int:
    """How many orders the group has finished."""
    return sum(row.consumer_offset for row in (await mq.admin.group_progress(GROUP, "orders")).values())


async def what_was_recalled_stays_so_and_all_else_comes_once_and_in_time(
    broker: EmbeddedBroker, expected: dict[str, Any]
) -> None:
    async with broker.connect() as mq:
        for key, verdict in RECALLS.items():
            assert (await mq.timers.recall(expected["handles"][key])).verdict is verdict, key
    await broker.advance(HOURLY_FOR)
    async with broker.connect() as mq:
        await mq.recurring.pause("hourly")
    await broker.restart()
    await broker.advance(timedelta(days=36))
    came = [(message.body, message.store_timestamp) for message in await broker.messages("reminders")]
    hourly = [at for body, at in came if body == b"every hour"]
    assert len(hourly) == HOURLY_FOR / timedelta(hours=1)
    assert all(at % 3_600_000 == 0 for at in hourly)
    due = {bytes.fromhex(body): whole_ms(at) for at, _, body in expected["delayed"]}
    due |= {key[0].encode(): at for key, at in expected["timers"] if key[0] not in RECALLS}
    timed = sorted((body, at) for body, at in came if body in due or body.decode() in expected["handles"])
    assert timed == sorted(due.items())


RECALLS = {
    "near-0": orbitmq.TimerVerdict.RECALLED,
    "far-0": orbitmq.TimerVerdict.RECALLED,
    "gone-0": orbitmq.TimerVerdict.ALREADY_RECALLED,
    "gone-far-0": orbitmq.TimerVerdict.ALREADY_RECALLED,
}


def whole_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


async def test_a_store_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    data, expected = unpacked(STORES[0], tmp_path)
    mark = data / MARK_FILE
    content = bytearray(mark.read_bytes())
    for begin in range(0, len(content), SLOT_BYTES):
        length = int.from_bytes(content[begin + 4 : begin + 8])
        if length:
            payload = json.loads(content[begin + 8 : begin + 8 + length])
            payload["version"] = A_LATER_VERSION
            text = json.dumps(payload).encode()
            content[begin : begin + 8 + len(text)] = zlib.crc32(text).to_bytes(4) + len(text).to_bytes(4) + text
    mark.write_bytes(content)
    before = everything_in(data)
    with pytest.raises(OrbitError, match="a later version of orbitmq"):
        await opened(data, expected).start()
    assert everything_in(data) == before


@pytest.mark.parametrize("journal", ["orbitmq.once", "orbitmq.timers"])
async def test_a_journal_of_a_later_version_is_refused_by_name(journal: str, tmp_path: Path) -> None:
    data, expected = unpacked(STORES[0], tmp_path)
    content = bytearray((data / journal).read_bytes())
    content[7] = ord("9")
    (data / journal).write_bytes(content)
    with pytest.raises(OrbitError, match=f"{journal} .*a later version of orbitmq"):
        await opened(data, expected).start()


def everything_in(data: Path) -> dict[str, bytes]:
    files = [path for path in data.rglob("*") if path.is_file() and path.name not in ("lock", "abort")]
    return {str(path.relative_to(data)): path.read_bytes() for path in files if path.stat().st_size < 2_000_000}
