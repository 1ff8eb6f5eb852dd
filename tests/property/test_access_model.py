"""The table of users beside a model: lists of users and of entries, searched from one end to the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from orbitmq.access import table as under_test
from orbitmq.access.gate import Denied
from orbitmq.access.policies import ALL_ACTIONS, Acl, Decision, Entry, PolicyType, read_resource
from orbitmq.access.table import AccessTable
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.protocol.remoting.requests import Action

NAMES = ("a", "ab", "b", "User:a", " ")
RESOURCES = ("*", "Topic:*", "Topic:a", "Topic:a*", "Topic:ab", "Group:a", "Cluster:*")
STEPS = 400


class Model:
    """What should be there: users, and (user, policy, entry) in the order in which resources came."""

    def __init__(self) -> None:
        self.users: list[User] = []
        self.entries: list[tuple[str, PolicyType, Entry]] = []

    def _is_there(self, name: str) -> bool:
        return any(user.name == name for user in self.users)

    def _may(self, name: str, by: User | None) -> bool:
        was_super = any(user.name == name and user.type is UserType.SUPER for user in self.users)
        return not was_super or (by is not None and by.type is UserType.SUPER)

    def create(self, user: User, by: User | None) -> bool:
        if user.type is UserType.SUPER and (by is None or by.type is not UserType.SUPER):
            return False
        if self._is_there(user.name) or not user.name.strip():
            return False
        self.users.append(user)
        return True

    def update(self, name: str, by: User | None, password: str, status: UserStatus | None) -> bool:
        if not self._is_there(name) or not self._may(name, by):
            return False
        (index,) = (index for index, user in enumerate(self.users) if user.name == name)
        old = self.users[index]
        self.users[index] = User(name, password or old.password, old.type, status or old.status)
        return True

    def delete(self, name: str, by: User | None) -> bool:
        if not name.strip() or not self._may(name, by):
            return False
        self.users = [user for user in self.users if user.name != name]
        self.entries = [one for one in self.entries if one[0] != name]
        return True

    def merge(self, name: str, by: User | None, added: list[tuple[PolicyType, Entry]]) -> bool:
        if not self._is_there(name) or not added or self._is_own(name, by):
            return False
        for policy, entry in added:
            for index, (user, its_policy, old) in enumerate(self.entries):
                if (user, its_policy, old.resource) == (name, policy, entry.resource):
                    self.entries[index] = (name, policy, entry)
                    break
            else:
                self.entries.append((name, policy, entry))
        return True

    def forget(self, name: str, by: User | None, policy: PolicyType, resource: str | None) -> bool:
        if self._is_own(name, by) or not any(one[0] == name for one in self.entries):
            return False
        self.entries = [
            one
            for one in self.entries
            if not (one[0] == name and (resource is None or (one[1] is policy and one[2].resource.text == resource)))
        ]
        return True

    def _is_own(self, name: str, by: User | None) -> bool:
        return by is not None and by.name == name and by.type is not UserType.SUPER

    def acls(self, subject_part: str, resource_part: str) -> list[Acl]:
        def of(name: str, policy: PolicyType) -> tuple[Entry, ...]:
            return tuple(
                entry
                for user, its_policy, entry in self.entries
                if user == name and its_policy is policy and resource_part in entry.resource.text
            )

        names = sorted(user.name for user in self.users if subject_part in f"User:{user.name}")
        every = [Acl(name, of(name, PolicyType.CUSTOM), of(name, PolicyType.DEFAULT)) for name in names]
        return [acl for acl in every if acl.custom or acl.default]


def run(seed: int) -> None:
    rng = random.Random(seed)
    table, model = AccessTable(), Model()
    for step in range(STEPS):
        name = rng.choice(NAMES)
        by = rng.choice([None, User("root", "p", UserType.SUPER), *(User(one, "p") for one in NAMES)])
        call: partial[Any]
        what = rng.choice(["create", "update", "delete", "merge", "merge", "forget", "reload"])
        match what:
            case "create":
                user = User(name, f"p{step}", rng.choice(list(UserType)), rng.choice(list(UserStatus)))
                expected, call = model.create(user, by), partial(table.create_user, user, by)
            case "update":
                password, status = rng.choice(["", f"p{step}"]), rng.choice([None, *UserStatus])
                expected = model.update(name, by, password, status)
                call = partial(table.update_user, name, by, password=password, status=status)
            case "delete":
                expected, call = model.delete(name, by), partial(table.delete_user, name, by)
            case "merge":
                added = [(rng.choice(list(PolicyType)), entry(rng)) for _ in range(rng.randrange(4))]
                custom = tuple(one for policy, one in added if policy is PolicyType.CUSTOM)
                default = tuple(one for policy, one in added if policy is PolicyType.DEFAULT)
                expected = model.merge(name, by, added)
                call = partial(table.merge_acl, Acl(name, custom, default), by)
            case "forget":
                policy, resource = rng.choice(list(PolicyType)), rng.choice([None, *RESOURCES])
                expected = model.forget(name, by, policy, resource)
                pattern = None if resource is None else read_resource(resource)
                call = partial(table.delete_acl, name, by, policy, pattern)
            case _:
                document = msgspec.json.decode(msgspec.json.encode(table.frozen()()))
                table = AccessTable()
                expected, call = True, partial(table.load, document)
        assert made(call) is expected, (what, name, by)
        compare(table, model, rng)


def made(call: Callable[[], object]) -> bool:
    try:
        call()
    except Denied:
        return False
    return True


def entry(rng: random.Random) -> Entry:
    actions = rng.choice([ALL_ACTIONS, frozenset(rng.sample(list(Action), 2))])
    sources = rng.choice([(), ("10.0.0.1", "::1/64")])
    return Entry(read_resource(rng.choice(RESOURCES)), actions, sources, rng.choice(list(Decision)))


def compare(table: AccessTable, model: Model, rng: random.Random) -> None:
    part = rng.choice(["", "a", "User:a", "x"])
    assert table.users(part) == sorted((user for user in model.users if part in user.name), key=lambda user: user.name)
    about = rng.choice(["", "a", "*", "Topic:a"])
    assert table.acls(part, about) == model.acls(part, about)
    name = rng.choice(NAMES)
    assert table.user(name) == next((user for user in model.users if user.name == name), None)


@pytest.mark.parametrize("seed", range(12))
def test_the_table_is_what_lists_say(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize(
    "bug", ["the new entry is lost", "the policy is replaced", "everybody is super", "one policy is the other"]
)
def test_planted_bugs_are_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    match bug:
        case "the new entry is lost":
            monkeypatch.setattr(under_test, "_merged", lambda old, new: tuple(old) or tuple(new))
        case "the policy is replaced":
            monkeypatch.setattr(under_test, "_merged", lambda old, new: tuple(new))
        case "everybody is super":
            monkeypatch.setattr(under_test, "_is_super", lambda by: True)
        case _:
            monkeypatch.setattr(under_test, "_without", lambda entries, resource: ())
    with pytest.raises(AssertionError):
        run(1)
