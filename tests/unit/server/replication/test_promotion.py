"""Whether a slave may become master."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orbitmq.limits.store import SPACE_RESUMED_BYTES
from orbitmq.protocol.remoting.replication_bodies import PromoteRequest
from orbitmq.replication.kept_state import KeptState
from orbitmq.server.replication.promotion import Promotion, PromotionRefused

FORMER = "10.0.0.1:10911"


def made(
    *,
    former_leads: bool = False,
    former_answers: bool = True,
    former_changes: bool = False,
    free_bytes: Callable[[], int] = lambda: 1 << 30,
) -> Promotion:
    async def leads(main: str) -> tuple[bool, bool]:
        assert main == FORMER
        return former_answers, former_leads

    async def standing(main: str, *, is_named: bool) -> tuple[bool, bool]:
        assert (main, is_named) == (FORMER, False)
        return former_leads, former_changes

    async def members() -> dict[int, str]:
        return {}

    store = SimpleNamespace(trouble="", log=SimpleNamespace(written_end=1_000))
    asking = SimpleNamespace(leads=leads, standing=standing)
    places = SimpleNamespace(members=members, own="10.0.0.2:10911", master_port=lambda: "")
    state = KeptState("d" * 32, copies=["10.0.0.2:10911", FORMER])
    return Promotion(
        *cast("tuple[Any, Any, Any, Any]", (store, state, asking, places)),
        damage=lambda: "",
        free_bytes=free_bytes,
    )


async def test_what_a_master_asked_before_it_led_again_makes_no_second_master() -> None:
    handed_over = PromoteRequest(although_master_lives=True, former=FORMER)
    with pytest.raises(PromotionRefused, match="leads again"):
        await made(former_leads=True).check(handed_over, None)
    await made(former_leads=False).check(handed_over, None)
    await made(former_leads=False, former_answers=False).check(handed_over, None)


async def test_a_slave_of_which_nobody_names_the_master_asks_whoever_had_its_log() -> None:
    with pytest.raises(PromotionRefused, match=f"the master at {FORMER} lives"):
        await made(former_leads=True).check(PromoteRequest(), None)
    await made(former_leads=False).check(PromoteRequest(), None)


async def test_of_two_slaves_that_are_to_lead_at_once_each_hears_of_the_other() -> None:
    with pytest.raises(PromotionRefused, match=f"a command makes the broker at {FORMER} something else just now"):
        await made(former_changes=True).check(PromoteRequest(), None)
    await made(former_changes=True).check(PromoteRequest(although_master_lives=True), None)


async def test_a_person_may_have_two_masters() -> None:
    await made(former_leads=True).check(PromoteRequest(although_master_lives=True), None)


async def test_who_has_no_room_for_messages_does_not_become_the_master() -> None:
    def unreadable() -> int:
        raise OSError("no such mount")

    wanted = PromoteRequest(although_master_lives=True, although_behind=True)
    with pytest.raises(PromotionRefused, match="would take no messages: the disk is full: 1023 KiB are free"):
        await made(free_bytes=lambda: SPACE_RESUMED_BYTES - 1).check(wanted, None)
    with pytest.raises(PromotionRefused, match="cannot be looked at: no such mount"):
        await made(free_bytes=unreadable).check(wanted, None)
    await made(free_bytes=lambda: SPACE_RESUMED_BYTES).check(wanted, None)
