"""Texts under the keys of an engine: read whole and known, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orbitmq.replication.epoch_marks import EPOCH_MAX
from orbitmq.replication.view import View, first_view
from orbitmq.server.replication.engines.group_engine import MemberPlace
from orbitmq.server.replication.engines.kept_text import (
    folder_key,
    place_key,
    place_text,
    places_key,
    read_place,
    read_view,
    view_key,
    view_text,
)

VIEW = first_view("a", ["b", "c"]).take_over("a", "life-1")
PLACE = MemberPlace("b", "10.0.0.2:10911", "10.0.0.2:10912", "ab" * 16, "1.0")


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(view_text("g", VIEW)), **fields}).encode()


def of_view(**fields: Any) -> bytes:
    return changed(view={**json.loads(view_text("g", VIEW))["view"], **fields})


def test_a_view_and_a_place_are_read_as_they_were_written() -> None:
    assert read_view("g", view_text("g", VIEW)) == VIEW
    assert read_place("g", "b", place_text("g", PLACE)) == PLACE


def test_keys_of_one_group_are_never_those_of_another() -> None:
    assert view_key("p", "g") == "p/groups/g/view"
    assert place_key("p", "a/b%", "x/y") == "p/groups/a%2Fb%25/members/x%2Fy"
    assert not folder_key("p", "ab").startswith(folder_key("p", "a"))
    assert not view_key("p", "g").startswith(places_key("p", "g"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "array"),
        (b"{}", "format"),
        (view_text("g", VIEW)[:-9], "truncated"),
        (view_text("g", VIEW) + b"x", "trailing"),
        (changed(format=2), "format is 2"),
        (changed(format="1"), "format"),
        (changed(more=1), "unknown field"),
        (changed(group="h"), "of the group h"),
        (of_view(role="x"), "not as a member writes"),
        (of_view(epoch=-1), "out of range"),
        (of_view(epoch=1.5), "float"),
        (of_view(serial=0), "out of range"),
        (of_view(serial=2**64), "beyond what a log and a file can say"),
        (of_view(epoch=EPOCH_MAX + 1), "beyond what a log and a file can say"),
        (of_view(in_sync=[]), "no members"),
        (of_view(in_sync=["a", "a"]), "no members"),
        (of_view(in_sync=["b", "a"], learners=["c"]), "not in order"),
        (of_view(learners=["c", "b"]), "not in order"),
        (of_view(leader="z"), "not in sync"),
        (of_view(learners=[f"m{n}" for n in range(9)]), "more than"),
        (of_view(claim="x" * 5_000), "bytes"),
        (b"[" * 4_000, "array|deep"),
    ],
)
def test_a_text_that_is_not_sound_is_no_view(text: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_view("g", text)


def test_a_place_under_another_members_key_is_not_believed() -> None:
    with pytest.raises(ValueError, match="the place of b"):
        read_place("g", "c", place_text("g", PLACE))


def test_a_view_too_long_for_an_engine_is_not_written() -> None:
    long = View(epoch=1, serial=1, leader="", claim="", in_sync=("x" * 5_000,))
    with pytest.raises(ValueError, match="shorter names"):
        view_text("g", long)
