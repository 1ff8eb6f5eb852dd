"""Bodies of orbitmq's own requests about idempotent sends: which scopes a sender has used, and that it is done with an epoch.

A sender that sends to several brokers has to repeat at the broker where it sent first. It finds that one again by asking each broker
which of its scopes it knows.

Rules of this file
1. JSON members have the field's name in camel case.
2. Both requests are asked before or after sends, never instead of one: what was sent stands in the messages themselves.
3. Where callers are known, the header field `topic` says which topic the scopes are of, and their names say it by `topic_mark`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from orbitmq.protocol.remoting.bodies.json_body import Int64, JsonBody

MARK_CHARS: Final = 12


def topic_mark(topic: str) -> str:
    """What stands for the topic in the name of a scope that sends to it alone: `<who>/<mark>@<brokers>`."""
    return blake2b(topic.encode("utf-8", "surrogatepass"), digest_size=MARK_CHARS // 2).hexdigest()


class ScopeQuery(JsonBody):
    """Body of FIND_SCOPES: scopes whose names begin with `prefix`."""

    prefix: str


class ScopeView(JsonBody):
    """What a broker remembers of one scope.

    `epoch` is the highest one that was seen, or the one behind an epoch that was finished; `previous_epoch` the one before it, whose
    keys are remembered as well.
    """

    scope: str
    epoch: Int64
    keys: int
    previous_epoch: Int64 | None = None
    finished_epoch: Int64 | None = None


class ScopeList(JsonBody):
    """Answer to FIND_SCOPES. `more`: there are others, which did not fit."""

    scopes: list[ScopeView]
    more: bool = False


class FinishEpoch(JsonBody):
    """Body of FINISH_EPOCH: every send in this epoch of the scope was answered, and none will be repeated.

    `mark` stands for everything that was sent, from 0 to 2^63 - 1: who finishes the epoch again with another mark, with other things to
    send therefore, is answered STALE_EPOCH. `brief`: nobody but a task that was replaced will ask for this scope again, so it may be
    forgotten soon.
    """

    scope: str
    epoch: Int64
    mark: Int64
    brief: bool = False
