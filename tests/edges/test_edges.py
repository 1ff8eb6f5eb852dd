"""One round of every edge, and proof that the account sees: planted bugs must be caught in the edge that names them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.edges.campaign import EDGES, KNOWN, judge, main
from tests.edges.planted import PLANTED

SEED = 0

PLAYED_BY_COMMAND = "nothing_synced"


@pytest.mark.parametrize("edge", EDGES)
def test_every_promise_is_kept_at_an_edge(edge: str, figure: Callable[[str], None]) -> None:
    outcome = judge(edge, SEED)
    if outcome.cannot:
        pytest.skip(outcome.cannot)
    figure(f"{edge}: {'; '.join(outcome.notes)}")
    if edge in KNOWN and outcome.findings:
        pytest.xfail(KNOWN[edge])
    assert not outcome.findings, (outcome.findings, outcome.notes, outcome.account)


@pytest.mark.parametrize("bug", [bug for bug in PLANTED if bug != PLAYED_BY_COMMAND])
def test_a_planted_bug_is_caught(bug: str) -> None:
    outcome = judge(PLANTED[bug].edge, SEED, bug)
    if outcome.cannot:
        pytest.skip(outcome.cannot)
    assert outcome.findings, outcome.account


def test_the_command_prints_an_account_and_answers_with_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "1", "--seed", str(SEED), "--plant", PLAYED_BY_COMMAND]) == 1
    printed = capsys.readouterr().out
    assert f"{PLANTED[PLAYED_BY_COMMAND].edge}, seed {SEED}" in printed
    assert "x send SUCCESS" in printed
    assert "lost although the send returned" in printed
    assert "1 rounds from seed 0: 1 broken, 0 that could not run here" in printed
