"""What copies mean for a send, as tables."""

from __future__ import annotations

import pytest

from orbitmq.replication.acknowledgements import (
    CopyOutcome,
    CopyRule,
    confirmable_end,
    copied_end,
    one_slave_rule,
    outcome,
    quorum_rule,
    refusal,
)

ALONE = CopyRule()
ANY = one_slave_rule()
STRICT = one_slave_rule(refuses=True)
THREE = quorum_rule(total_replicas=3, in_sync_replicas=3)
TWO_OF_THREE = quorum_rule(total_replicas=3, in_sync_replicas=3, min_in_sync_replicas=2)
LOWERING = quorum_rule(total_replicas=3, in_sync_replicas=3, min_in_sync_replicas=2, lowers=True)
ALL = quorum_rule(total_replicas=3, in_sync_replicas=2, waits_for_all=True)
DEFAULTS_OF_5 = quorum_rule(total_replicas=1, in_sync_replicas=1)

COPIED, MISSING, WAITS = CopyOutcome.COPIED, CopyOutcome.SLAVE_NOT_AVAILABLE, None


@pytest.mark.parametrize(
    ("rule", "positions", "expected"),
    [
        (ALONE, [], COPIED),
        (DEFAULTS_OF_5, [], COPIED),
        (ANY, [], MISSING),
        (ANY, [99], WAITS),
        (ANY, [100], COPIED),
        (ANY, [0, 100], COPIED),
        (THREE, [100], MISSING),
        (THREE, [100, 99], WAITS),
        (THREE, [100, 100], COPIED),
        (TWO_OF_THREE, [100], MISSING),
        (LOWERING, [], MISSING),
        (LOWERING, [99], WAITS),
        (LOWERING, [100], COPIED),
        (LOWERING, [100, 99], WAITS),
        (ALL, [], MISSING),
        (ALL, [100], COPIED),
        (ALL, [100, 99], WAITS),
        (ALL, [100, 100], COPIED),
    ],
)
def test_what_a_written_message_hears(rule: CopyRule, positions: list[int], expected: CopyOutcome | None) -> None:
    assert outcome(rule, positions, 100) is expected


@pytest.mark.parametrize(
    ("rule", "count", "expected"),
    [
        (ALONE, 0, None),
        (ANY, 0, None),
        (STRICT, 0, CopyOutcome.REFUSED),
        (STRICT, 1, None),
        (THREE, 0, None),
        (TWO_OF_THREE, 0, CopyOutcome.IN_SYNC_REPLICAS_NOT_ENOUGH),
        (TWO_OF_THREE, 1, None),
        (LOWERING, 0, CopyOutcome.IN_SYNC_REPLICAS_NOT_ENOUGH),
        (LOWERING, 1, None),
    ],
)
def test_what_is_not_written(rule: CopyRule, count: int, expected: CopyOutcome | None) -> None:
    assert refusal(rule, count) is expected


@pytest.mark.parametrize(
    ("rule", "positions", "copied", "confirmable"),
    [
        (ALONE, [7], None, None),
        (ANY, [], None, None),
        (ANY, [7, 9], 9, 9),
        (STRICT, [], None, 0),
        (STRICT, [7], 7, 7),
        (THREE, [7, 9], 7, 7),
        (THREE, [9], None, None),
        (LOWERING, [9], 9, 9),
        (ALL, [7, 9], 7, 7),
    ],
)
def test_how_far_copies_let_the_log_be_confirmed(
    rule: CopyRule, positions: list[int], copied: int | None, confirmable: int | None
) -> None:
    assert copied_end(rule, positions) == copied
    assert confirmable_end(rule, positions) == confirmable


def test_who_was_told_ok_is_on_copies_that_hold_confirming_back() -> None:
    """COPIED never comes before the copies let the log be confirmed that far."""
    for rule in (ANY, STRICT, THREE, TWO_OF_THREE, LOWERING, ALL):
        for positions in ([], [3], [9], [3, 9], [9, 9], [3, 5, 9]):
            if outcome(rule, positions, 9) is COPIED:
                assert confirmable_end(rule, positions) in (9, None)


@pytest.mark.parametrize(("least", "in_sync", "total"), [(0, 1, 1), (2, 1, 3), (1, 3, 2)])
def test_numbers_that_do_not_go_together(least: int, in_sync: int, total: int) -> None:
    with pytest.raises(ValueError, match="in this order"):
        quorum_rule(total_replicas=total, in_sync_replicas=in_sync, min_in_sync_replicas=least)
    with pytest.raises(ValueError, match="do not go together"):
        CopyRule(needed=1, needed_min=2)
