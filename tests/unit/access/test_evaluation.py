"""Which entry decides, step by step."""

from __future__ import annotations

import time

import pytest

from orbitmq.access.evaluation import Permissions
from orbitmq.access.needed import Needed
from orbitmq.access.policies import Acl, Entry, PolicyType, read_entry
from orbitmq.protocol.remoting.requests import Action, ResourceType

HOME = "127.0.0.1"
PUB = frozenset({Action.PUB})


def allowed(custom: list[str], needed: str, address: str = HOME, default: list[str] | None = None) -> bool:
    """`custom` and `default` are lines such as `Allow Topic:a Pub|Sub 10.0.0.0/8`, `needed` such as `Topic:a Pub|Get`."""
    resource, actions = needed.split()
    type_name, _, name = resource.partition(":")
    need = Needed(
        ResourceType(type_name), None if name == "*" else name, frozenset(Action(word) for word in actions.split("|"))
    )
    acl = Acl("alice", *(tuple(read_line(line) for line in lines) for lines in (custom, default or [])))
    return Permissions(acl).judge(need, address).is_allowed


def read_line(line: str) -> Entry:
    decision, resource, actions, *sources = line.split()
    return read_entry(resource, actions.split("|"), sources, decision)


def test_nothing_is_allowed_without_an_entry() -> None:
    assert not allowed([], "Topic:a Pub")
    assert not allowed(["Allow Topic:b Pub"], "Topic:a Pub")
    assert not allowed(["Allow Topic:a Sub"], "Topic:a Pub")
    assert not allowed(["Allow Group:a All"], "Topic:a Pub")


@pytest.mark.parametrize(
    "general_and_specific",
    [
        ("*", "Topic:*"),
        ("Topic:*", "Topic:a*"),
        ("Topic:a*", "Topic:ab*"),
        ("Topic:ab*", "Topic:abc"),
        ("*", "Topic:abc"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_more_specific_entry_decides(general_and_specific: tuple[str, str], turned: bool) -> None:
    general, specific = general_and_specific
    for decision, other in (("Allow", "Deny"), ("Deny", "Allow")):
        lines = [f"{decision} {specific} All", f"{other} {general} All"]
        assert allowed(lines[::-1] if turned else lines, "Topic:abc Pub") is (decision == "Allow")


def test_a_more_specific_entry_about_other_actions_says_nothing() -> None:
    assert allowed(["Deny Topic:a Sub", "Allow Topic:* Pub"], "Topic:a Pub")


def test_deny_wins_between_entries_about_the_same_resource() -> None:
    for lines in (["Allow Topic:a Pub", "Deny Topic:a All"], ["Deny Topic:a All", "Allow Topic:a Pub"]):
        assert not allowed(lines, "Topic:a Pub")
    assert not allowed(["Allow Topic:a Sub", "Deny Topic:a Get"], "Topic:a Sub|Get")


def test_default_entries_count_where_no_custom_one_applies() -> None:
    assert allowed(["Allow * All"], "Topic:a Pub", default=["Deny Topic:a Pub"])
    assert allowed(["Deny Topic:a Sub"], "Topic:a Pub", default=["Allow Topic:* Pub"])
    assert not allowed(["Deny * All"], "Topic:a Pub", default=["Allow Topic:a Pub"])


def test_all_of_a_type_is_needed() -> None:
    assert allowed(["Allow Topic:* List"], "Topic:* List")
    assert allowed(["Allow * List"], "Topic:* List")
    assert not allowed(["Allow Topic:a* List", "Allow Topic:a List"], "Topic:* List")


@pytest.mark.parametrize("some", ["Topic:payroll", "Topic:pay*"])
def test_who_may_not_have_some_of_them_has_not_all(some: str) -> None:
    assert not allowed(["Allow Topic:* List|Pub", f"Deny {some} All"], "Topic:* List")
    assert not allowed(["Allow * All", f"Deny {some} Get|List"], "Topic:* List")
    assert not allowed([f"Deny {some} All"], "Topic:* List", default=["Allow * All"])
    assert allowed(["Allow Topic:* List|Pub", f"Deny {some} Pub"], "Topic:* List")
    assert allowed(["Allow * All", f"Deny {some} All 10.0.0.0/8"], "Topic:* List")
    assert allowed(["Allow * All", "Deny Group:payroll All"], "Topic:* List")
    assert allowed(["Allow * All"], "Topic:* List", default=[f"Deny {some} All"])


@pytest.mark.parametrize(
    ("source", "address", "fits"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.0/8", "10.255.255.255", True),
        ("10.0.0.0/8", "11.0.0.0", False),
        ("10.0.0.0/8", "::ffff:10.1.1.1", True),
        ("::ffff:10.0.0.0/104", "10.1.1.1", True),
        ("0.0.0.0/0", "::1", False),
        ("::/0", "1.2.3.4", False),
        ("fe80::/10", "fe80::1%eth0", True),
        ("2001:db8:0:0::1", "2001:DB8::1", True),
    ],
)
def test_sources_are_compared_as_addresses(source: str, address: str, fits: bool) -> None:
    assert allowed([f"Allow Topic:a Pub {source}"], "Topic:a Pub", address) is fits
    assert allowed([f"Deny Topic:a Pub {source}", "Allow * All"], "Topic:a Pub", address) is not fits


def test_what_is_no_address_gets_nothing_by_its_place() -> None:
    assert not allowed(["Allow Topic:a Pub 0.0.0.0/0 ::/0"], "Topic:a Pub", "somewhere")
    assert not allowed(["Deny Topic:a Pub 10.0.0.0/8", "Allow * All"], "Topic:a Pub", "somewhere")


def test_the_entry_that_decided_is_named() -> None:
    deny, allow = read_line("Deny Topic:a* Pub"), read_line("Allow Topic:* All")
    permissions = Permissions(Acl("alice", (allow,), (deny,)))
    assert permissions.judge(Needed(ResourceType.TOPIC, "abc", PUB), HOME) == (True, allow, PolicyType.CUSTOM)
    assert Permissions(Acl("alice")).judge(Needed(ResourceType.TOPIC, "abc", PUB), HOME) == (False, None, None)
    assert Permissions(Acl("alice", (), (deny,))).judge(Needed(ResourceType.TOPIC, "abc", PUB), HOME).entry is deny


def test_a_decision_does_not_look_at_every_entry() -> None:
    """Entries of a user with 10,000 must not make a decision dearer than 20 times that of one with 10."""

    def cost_ns(entries: int) -> int:
        lines = [f"Allow Topic:t{i}{'*' if i % 2 else ''} Sub" for i in range(entries)]
        permissions = Permissions(Acl("alice", tuple(read_line(line) for line in lines)))
        need = Needed(ResourceType.TOPIC, f"t{entries - 1}x", PUB)
        return min(_timed_ns(permissions, need) for _ in range(30))

    assert cost_ns(10_000) < 20 * cost_ns(10)


def _timed_ns(permissions: Permissions, need: Needed) -> int:
    began = time.perf_counter_ns()
    for _ in range(20):
        permissions.judge(need, HOME)
    return time.perf_counter_ns() - began
