"""Whether a slave may become master."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from orbitmq.protocol.remoting.replication_bodies import PromoteRequest
from orbitmq.replication.kept_state import KeptState
from orbitmq.server.replication.promotion import Promotion, PromotionRefused

FORMER = "10.0.0.1:10911"


def made(*, former_leads: bool, former_answers: bool = True) -> Promotion:
    async def leads(main: str) -> tuple[bool, bool]:
        assert main == FORMER
        return former_answers, former_leads

    async def members() -> dict[int, str]:
        return {}

    store = SimpleNamespace(trouble="", log=SimpleNamespace(written_end=1_000))
    asking, places = SimpleNamespace(leads=leads), SimpleNamespace(members=members, own="10.0.0.2:10911")
    return Promotion(
        *cast("tuple[Any, Any, Any, Any]", (store, KeptState("d" * 32), asking, places)), damage=lambda: ""
    )


async def test_what_a_master_asked_before_it_led_again_makes_no_second_master() -> None:
    handed_over = PromoteRequest(although_master_lives=True, former=FORMER)
    with pytest.raises(PromotionRefused, match="leads again"):
        await made(former_leads=True).check(handed_over, None)
    await made(former_leads=False).check(handed_over, None)
    await made(former_leads=False, former_answers=False).check(handed_over, None)


async def test_a_person_may_have_two_masters() -> None:
    await made(former_leads=True).check(PromoteRequest(although_master_lives=True), None)
