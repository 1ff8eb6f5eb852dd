"""Who may read the HTTP port."""

from __future__ import annotations

import asyncio
import base64
import logging

import pytest

from orbitmq.access.evaluation import Permissions
from orbitmq.access.failures import FailedAttempts
from orbitmq.access.policies import Acl, Decision, Entry, read_resource
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.clock import ManualClock
from orbitmq.limits.access import FAILURES_UNSLOWED_MAX
from orbitmq.limits.server import HTTP_LATE_ANSWERS_MAX
from orbitmq.protocol.remoting.requests import Action
from orbitmq.server.monitoring import http_access
from orbitmq.server.monitoring.http_access import HttpAccess
from orbitmq.server.monitoring.http_front import HttpAnswer, HttpRequest

GET_CLUSTER = Entry(read_resource("Cluster:C"), frozenset({Action.GET}), ("10.0.0.0/8",), Decision.ALLOW)
PUB_TOPIC = Entry(read_resource("Topic:*"), frozenset({Action.PUB}), (), Decision.ALLOW)


class Table:
    def __init__(self, *known: tuple[User, Acl | None]) -> None:
        self._known = {user.name: (user, acl) for user, acl in known}

    def user(self, name: str) -> User | None:
        return self._known[name][0] if name in self._known else None

    def permissions(self, name: str) -> Permissions | None:
        acl = self._known[name][1]
        return None if acl is None else Permissions(acl)


USERS = Table(
    (User("root", "secret-r", UserType.SUPER), None),
    (User("watch", "pass:wörd"), Acl("watch", (GET_CLUSTER,))),
    (User("app", "secret-a"), Acl("app", (PUB_TOPIC,))),
    (User("gone", "secret-g", UserType.SUPER, UserStatus.DISABLED), None),
    (User("none", "secret-n"), None),
)


async def inner(request: HttpRequest) -> HttpAnswer:
    return HttpAnswer(200, "text/plain", b"inside")


def access(*, authorizes: bool = True) -> HttpAccess:
    guard = HttpAccess(inner, FailedAttempts(ManualClock()), "C", authorizes=authorizes)
    guard.users = USERS
    return guard


def basic(name: str, password: str, scheme: str = "Basic") -> str:
    return f"{scheme} {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def ask(guard: HttpAccess, authorization: str = "", path: str = "/metrics", client: str = "10.0.0.7") -> HttpAnswer:
    return asyncio.run(guard.answer(HttpRequest(path, "", authorization, client)))  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_open(path: str) -> None:
    assert ask(access(), path=path).status == 200
    assert ask(access(), basic("root", "wrong"), path).status == 200


@pytest.mark.parametrize("path", ["/metrics", "/", "/no-such-thing", "/healthz/", "//healthz", "/HEALTHZ"])
def test_everything_else_asks_for_a_user(path: str) -> None:
    answer = ask(access(), path=path)
    assert answer.status == 401
    assert dict(answer.headers)["WWW-Authenticate"].startswith("Basic ")


def test_before_the_users_are_known_only_health_is_answered() -> None:
    guard = HttpAccess(inner, FailedAttempts(ManualClock()), "C", authorizes=False)
    assert ask(guard, path="/readyz").status == 200
    assert ask(guard, basic("root", "secret-r")).status == 503


def test_an_address_that_is_let_in_is_asked_for_nothing_once_the_users_are_known() -> None:
    guard = HttpAccess(inner, FailedAttempts(ManualClock()), "C", authorizes=False)
    guard.lets_in = "10.0.0.7".__eq__
    assert ask(guard).status == 503
    guard.users = USERS
    assert ask(guard).status == 200
    assert ask(guard, client="10.0.0.8").status == 401


@pytest.mark.parametrize(
    ("name", "password", "authorizes", "status"),
    [
        ("root", "secret-r", True, 200),
        ("watch", "pass:wörd", True, 200),
        ("app", "secret-a", True, 403),
        ("none", "secret-n", True, 403),
        ("app", "secret-a", False, 200),
        ("gone", "secret-g", True, 401),
        ("gone", "secret-g", False, 401),
        ("root", "secret-a", False, 401),
        ("root", "", False, 401),
        ("nobody", "secret-r", False, 401),
        ("nobody", "\0", False, 401),
        ("", "", False, 401),
    ],
)
def test_a_user_is_known_by_its_password_and_needs_to_see_the_cluster(
    name: str, password: str, authorizes: bool, status: int
) -> None:
    assert ask(access(authorizes=authorizes), basic(name, password)).status == status


def test_a_policy_counts_from_its_addresses_only() -> None:
    assert ask(access(), basic("watch", "pass:wörd"), client="192.168.0.1").status == 403


@pytest.mark.parametrize(
    "header",
    [
        "x", "Basic", "Basic ", "Basic !!!", "Basic cm9vdA==", "Basic /w==", basic("root", "secret-r", "Bearer"),
        basic("root", "secret-r", ""), basic("root", "secret-r") + "x", "Basic é", "Basic " + "A" * 10_000,
    ],
)  # fmt: skip
def test_a_header_that_is_something_else_proves_nothing(header: str) -> None:
    assert ask(access(), header).status == 401


def test_wrong_passwords_wait_and_right_ones_do_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(http_access.asyncio, "sleep", sleep)
    guard = access()
    with caplog.at_level(logging.INFO):
        for number in range(FAILURES_UNSLOWED_MAX + 3):
            assert ask(guard, basic("root", f"guess-{number}")).status == 401
            assert ask(guard, basic("root", "secret-r")).status == 200
    assert waits == [0.1, 0.2, 0.4]
    ask(guard, basic("root", "guess"), client="10.0.0.8")
    assert len(waits) == 3
    assert len(caplog.records) == 3
    assert "guess" not in caplog.text
    assert "secret" not in caplog.text


async def test_those_that_wait_are_bounded() -> None:
    guard = access()
    wrong = HttpRequest("/metrics", "", basic("root", "guess"), "10.0.0.7")
    for _ in range(FAILURES_UNSLOWED_MAX):
        await guard.answer(wrong)
    waiting = [asyncio.ensure_future(guard.answer(wrong)) for _ in range(HTTP_LATE_ANSWERS_MAX)]
    await asyncio.sleep(0)
    assert (await guard.answer(wrong)).status == 429
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert guard._late_count == 0


def test_a_request_does_not_show_what_it_brings() -> None:
    assert basic("root", "secret-r") not in repr(HttpRequest("/metrics", "", basic("root", "secret-r"), "10.0.0.7"))
