"""Random policies against an evaluator that sorts all entries, and the bugs that this must catch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.access_reference import Line, may

from orbitmq.access import evaluation
from orbitmq.access.evaluation import Permissions
from orbitmq.access.needed import Needed
from orbitmq.access.policies import Acl, Decision, read_entry
from orbitmq.protocol.remoting.requests import Action, ResourceType

CASES_PER_SEED = 25
CASES_MAX = 3_000
"""Every planted bug is found by then: the rarest shows in one of some hundred cases."""

NAMES = ("a", "ab", "abc", "b")
ACTIONS = ("Pub", "Sub", "Get")
ADDRESSES = ("10.1.2.3", "10.2.0.1", "11.0.0.1", "::ffff:10.1.9.9", "2001:db8::1", "::1")
SOURCES = ("10.1.2.3", "10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0", "::/0", "2001:db8::/32", "::1")

Case = tuple[list[Line], str, tuple[str, ...], str]


def random_case(chance: random.Random) -> Case:
    """Entries, and what is asked. Drawn without the help of hypothesis, whose choices cost more than the evaluation."""

    def kind() -> str:
        return chance.choice(["Topic", "Topic", "Topic", "Group"])

    def pattern() -> str:
        name = chance.choice([*(f"{name}{end}" for name in NAMES for end in ("", "*")), "*"])
        return f"{kind()}:{name}" if chance.random() < 0.9 else "*"

    def some(values: tuple[str, ...], most: int) -> tuple[str, ...]:
        return tuple(chance.choices(values, k=chance.randint(1, most)))

    lines = [
        Line(
            chance.choice(["Custom", "Default"]),
            pattern(),
            chance.choice([("All",), some(ACTIONS, 3)]),
            chance.choice([(), some(SOURCES, 2)]),
            chance.choice(["Allow", "Deny"]),
        )
        for _ in range(chance.randrange(9))
    ]
    return lines, f"{kind()}:{chance.choice(NAMES)}", some(ACTIONS, 2), chance.choice(ADDRESSES)


def agrees(case: Case) -> bool:
    lines, resource, actions, address = case
    custom, default = (
        tuple(read_entry(*line[1:]) for line in lines if line.policy == policy) for policy in ("Custom", "Default")
    )
    type_name, _, name = resource.partition(":")
    needed = Needed(ResourceType(type_name), name, frozenset(Action(action) for action in actions))
    judgement = Permissions(Acl("alice", custom, default)).judge(needed, address)
    return judgement.is_allowed is may(lines, resource, actions, address)


@given(st.integers(0, 2**64 - 1))
def test_policies_decide_as_the_specification_says(seed: int) -> None:
    chance = random.Random(seed)
    for case in (random_case(chance) for _ in range(CASES_PER_SEED)):
        assert agrees(case), case


def allow_wins_a_tie(monkeypatch: pytest.MonkeyPatch) -> None:
    class Turned:
        ALLOW, DENY = Decision.DENY, Decision.ALLOW

    made = evaluation._TypeRules.__init__

    def turned(self: evaluation._TypeRules, *arguments: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(evaluation, "Decision", Turned)
            made(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(evaluation._TypeRules, "__init__", turned)


def a_prefix_beats_an_exact_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def about(self: evaluation._TypeRules, name: str | None) -> Iterator[object]:
        rules = list(right(self, name))
        exact = [rules.pop(0)] if name in self._exact else []
        return iter([*rules[:-1], *exact, rules[-1]])

    right = evaluation._TypeRules.about
    monkeypatch.setattr(evaluation._TypeRules, "about", about)


def the_shortest_prefix_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def about(self: evaluation._TypeRules, name: str | None) -> Iterator[object]:
        rules = list(right(self, name))
        exact = [rules.pop(0)] if name in self._exact else []
        return iter([*exact, *rules[-2::-1], rules[-1]])

    right = evaluation._TypeRules.about
    monkeypatch.setattr(evaluation._TypeRules, "about", about)


def sources_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "_fits", lambda rule, address: True)


def mapped_addresses_stay_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    right = evaluation._number
    monkeypatch.setattr(evaluation, "_number", lambda text: (6, 0) if text.startswith("::ffff:") else right(text))


def default_before_custom(monkeypatch: pytest.MonkeyPatch) -> None:
    class Turned(Permissions):
        def __init__(self, acl: Acl) -> None:
            super().__init__(acl)
            self._policies.reverse()

    monkeypatch.setitem(globals(), "Permissions", Turned)


@pytest.mark.parametrize(
    "bug",
    [
        allow_wins_a_tie,
        a_prefix_beats_an_exact_name,
        the_shortest_prefix_decides,
        sources_do_not_matter,
        mapped_addresses_stay_ipv6,
        default_before_custom,
    ],
)
def test_the_judge_catches(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    chance = random.Random(7)
    assert any(not agrees(random_case(chance)) for _ in range(CASES_MAX))
