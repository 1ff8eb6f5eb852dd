"""A master and its slaves with real stores, whatever happens to them: what was promised is kept, and every copy becomes level again.

See `pair_life` for what happens, and `pair_account` for what has to hold.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.crash.harness import quiet, scratch
from tests.property.networked_broker import simulated_parts
from tests.property.networked_life import lived
from tests.property.pair_bugs import BUGS
from tests.property.pair_life import Life, run

from orbitmq.protocol.properties import Property
from orbitmq.replication.settings import BrokerKind

SEEDS = range(15)
SHARE = 15
"""Lives of one test."""

CAUGHT_WITHIN = 15
"""Lives within which each planted bug is noticed; now in the first ten."""

HANDED_OVER = "handed over before the slave has everything"
EXCHANGING_SEEDS = range(13, 73)
"""Of lives in which roles are exchanged all the time: one in fifteen shows that bug, now the first."""


class Exchanging(Life):
    exchanges = 15


@pytest.mark.parametrize("first", SEEDS[::SHARE])
def test_copies_keep_what_was_promised(first: int) -> None:
    lives = [run(seed) for seed in range(first, first + SHARE)]
    assert [(life.seed, life.problem) for life in lives if life.problem] == []
    counts = sum((Counter(life.counts) for life in lives), Counter[str]())
    assert all(counts[what] for what in ("answer 0", "answer 11", "promoted rightly", "exchanged", "emptied")), counts


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_noticed(bug: str) -> None:
    seeds = EXCHANGING_SEEDS if bug == HANDED_OVER else range(CAUGHT_WITHIN)
    made = Exchanging if bug == HANDED_OVER else Life
    with BUGS[bug]():
        assert any(lived(made, seed).problem is not None for seed in seeds), "nothing was noticed"


def test_a_slave_that_is_made_master_before_it_has_copied_all_takes_nothing_for_promised_that_it_cannot_know() -> None:
    """Its master's first files had gone, and what is said again of them had not come: a repeat is stored once more."""
    with scratch() as base, quiet(), simulated_parts():
        life = small_life(base)
        life.network.delays_ms = (1,)
        life._send({Property.ONCE_SCOPE: "s", Property.ONCE_EPOCH: "0", Property.ONCE_KEY: "K0"})
        for _ in range(3):
            life.turn()
            life.retain()
            life.advance(2_000)
        (slave,), first = life.others, life.account.promises["0:K0"]
        log = life.master.store.log
        assert first.offset < log.start, "its file has gone"
        slave.empty()
        life.account.disk_lost(slave)
        life.account.emptied(life.leader)
        life.start(slave)
        while slave.process is None or not log.start < slave.process.store.log.end:
            life.tend()
            life.advance(1)
        assert slave.process.store.log.end < slave.process.role._kept.state.seeding_until
        former = life.leader
        former.kill()
        assert life.account.has(former, first), "also of a broker that does not run"
        life._promote(slave, rightly=True)
        life.open.clear()
        life.again()
        life.turn()
        life.advance(1_000)
        assert life.account.promises["0:K0"].offset > first.offset
        life.close()


def small_life(base: Path) -> Life:
    """A pair that removes files and copies in small pieces."""
    for seed in range(300):
        directory = base / str(seed)
        directory.mkdir()
        life = Life(directory, seed)
        is_pair = len(life.machines) == 2 and life.kind is BrokerKind.ASYNC_MASTER
        if is_pair and life.removes_files and life.machines[0].replication.batch_bytes == 200:
            return life
        life.close()
    raise AssertionError("no seed gives one")


def test_a_seed_repeats_a_life() -> None:
    first, again = run(7), run(7)
    assert (first.steps, first.counts) == (again.steps, again.counts)
