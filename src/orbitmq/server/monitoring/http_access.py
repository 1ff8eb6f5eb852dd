"""Who may read the HTTP port: a user of the broker, or an account of RocketMQ 4, who shows name and password (HTTP basic authentication).

Rules of this file
1. Health is open: a probe has no password, and learns nothing but whether clients should come.
2. With authorization the user needs Cluster:Get. An account needs nothing more: nothing can be changed here, and what only looks at
   something needs a right signature alone. Addresses of the global white list are asked for nothing.
3. Answers to wrong passwords wait as those to wrong signatures do. A right password is never slowed.
4. The password is compared in constant time, and stands in no answer and no line of the log.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
from collections.abc import Callable
from typing import Final

from orbitmq.access.failures import FailedAttempts
from orbitmq.access.needed import Needed
from orbitmq.access.users import User, UserStatus, UserType
from orbitmq.access.users_gate import UserSource
from orbitmq.limits.access import FAILURES_UNSLOWED_MAX
from orbitmq.limits.server import HTTP_LATE_ANSWERS_MAX
from orbitmq.protocol.remoting.requests import Action, ResourceType
from orbitmq.server.monitoring.http_front import Answers, HttpAnswer, HttpRequest

_log = logging.getLogger("orbitmq.server.http")

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
_ASKS: Final = ("WWW-Authenticate", 'Basic realm="orbitmq", charset="UTF-8"')
_NO_PASSWORD: Final = b"\0"
"""Compared where there is no such user; no password has a control character."""


class HttpAccess:
    """Stands before the answers of a port. `users` is set once they are known; until then only health is answered."""

    def __init__(self, answers: Answers, attempts: FailedAttempts, cluster: str, *, authorizes: bool) -> None:
        self.users: UserSource | None = None
        self.lets_in: Callable[[str], bool] = lambda client: False
        """Whether an address is asked for nothing."""

        self._answers = answers
        self._needed = Needed(ResourceType.CLUSTER, cluster, frozenset({Action.GET})) if authorizes else None
        self._attempts = attempts
        self._late_count = 0

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        if request.path in OPEN_PATHS:
            return await self._answers(request)
        if self.users is None:
            return _refusal(503, "the process has not finished its start")
        if self.lets_in(request.client):
            return await self._answers(request)
        if not request.authorization:
            return _refusal(401, "give name and password of a user", _ASKS)
        user = _proven(request.authorization, self.users)
        if user is None:
            return await self._unproven(request)
        if self._needed is not None and not self._may(user, self._needed, self.users, request.client):
            return _refusal(403, f"User:{user.name} needs {Action.GET.value} on {self._needed.text}")
        return await self._answers(request)

    @staticmethod
    def _may(user: User, needed: Needed, users: UserSource, client: str) -> bool:
        if user.type is UserType.SUPER:
            return True
        permissions = users.permissions(user.name)
        return permissions is not None and permissions.judge(needed, client).is_allowed

    async def _unproven(self, request: HttpRequest) -> HttpAnswer:
        failure = self._attempts.add(request.client)
        if failure.lately in (1, FAILURES_UNSLOWED_MAX):
            _log.warning(
                "http: name or password from %s is wrong, or the user is disabled (%d times lately)",
                request.client,
                failure.lately,
                extra={"event": "caller_unknown"},
            )
        if failure.wait_ms:
            if self._late_count >= HTTP_LATE_ANSWERS_MAX:
                return _refusal(429, "too many wrong passwords lately")
            self._late_count += 1
            try:
                await asyncio.sleep(failure.wait_ms / 1_000)
            finally:
                self._late_count -= 1
        return _refusal(401, "name or password is wrong, or the user is disabled", _ASKS)


def _proven(authorization: str, users: UserSource) -> User | None:
    """The user whose name and password the header has; None for one that is wrong, unknown or disabled, and for another scheme."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:  # no base64, or no text
        return None
    if scheme.lower() != "basic" or not colon:
        return None
    user = users.user(name)
    expected = _NO_PASSWORD if user is None else user.password.encode()
    if not hmac.compare_digest(password.encode(), expected) or user is None or user.status is UserStatus.DISABLED:
        return None
    return user


def _refusal(status: int, text: str, *headers: tuple[str, str]) -> HttpAnswer:
    return HttpAnswer(status, "text/plain; charset=utf-8", f"{text}\n".encode(), headers)
