"""An orderly stop, another process, and then the machine loses power: the mark of the stop is not the last word."""

from __future__ import annotations

import random

import pytest
from tests.crash.harness import quiet, scratch
from tests.worlds.faults import RecordingFiles
from tests.worlds.little_store import LittleStore

from orbitmq.clock import ManualClock
from orbitmq.protocol.properties import decode_properties
from orbitmq.store.files import OsFiles

PAGES = {"max_hash_slot_num": 2_000}
"""Header and slots of the index lie on other pages than its entries."""


@pytest.mark.parametrize("seed", range(30))
def test_the_key_index_lacks_nothing(seed: int) -> None:
    with scratch() as base, quiet():
        root, left = base / "store", base / "after"
        root.mkdir()
        files, clock = RecordingFiles(OsFiles(), root), ManualClock()
        little = LittleStore(root, files=files, clock=clock, **PAGES)
        send(little, 0, 4)
        little.close()
        little = LittleStore(root, files=files, clock=clock, **PAGES)
        send(little, 4, 24)
        clock.advance(300)  # long enough for the save that counts while the machine runs, not for the durable one
        little.turn()
        little.kill()
        files.power_cut(left, random.Random(seed), keep=0.4)
        again = LittleStore(left, files=RecordingFiles(OsFiles(), left, boot="next boot"), clock=clock, **PAGES)
        store = again.store
        for entry in store.scan(0):
            key = decode_properties(entry.properties)["UNIQ_KEY"]
            assert store.query_by_key(entry.topic, key, 100, 0, 1 << 62) == [entry.physical_offset]
        again.close()


def send(little: LittleStore, first: int, following: int) -> None:
    for number in range(first, following):
        little.send(UNIQ_KEY=f"U{number}", KEYS=f"k{number}")
