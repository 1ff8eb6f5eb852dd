"""Where the changes of one version of a table are: nowhere, in the files that it added, or in its change data feed.

Rules of this file
1. Pure: lines of the table's log in, a decision out.
2. A version that only adds rows needs no feed. One that changes or removes rows does, and without it nobody knows what changed: that is an
   error, never a guess.
"""

from __future__ import annotations

import json
from enum import Enum
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from orbitmq.errors import ConfigurationError

FEED_PROPERTY: Final = "delta.enableChangeDataFeed"


class Where(Enum):
    """Where changes are read."""

    NOWHERE = "nowhere"
    ADDED_FILES = "added files"
    FEED = "feed"


class VersionPlan(NamedTuple):
    """files: below the table, what the changes are read from. has_feed: from this version on."""

    where: Where
    files: tuple[str, ...]
    has_feed: bool


def plan_version(place: str, version: int, content: bytes | None, *, has_feed: bool) -> VersionPlan:
    """What to read of a version. has_feed: before it. ConfigurationError where nobody knows any more what changed.

    content: of its file in the log, None where there is none.
    """
    if content is None:
        raise ConfigurationError(
            f"version {version} of the table {place} is not in its log any more",
            remedy="give since-version a later one and another checkpoint, and load what is there now by other means",
        )
    actions: list[dict[str, Any]] = [json.loads(line) for line in content.splitlines() if line.strip()]
    for action in actions:
        if "metaData" in action:
            has_feed = (action["metaData"].get("configuration") or {}).get(FEED_PROPERTY, "").lower() == "true"
    added = [unquote(action["add"]["path"]) for action in actions if "add" in action and action["add"]["dataChange"]]
    removed = any("remove" in action and action["remove"]["dataChange"] for action in actions)
    if not added and not removed:
        return VersionPlan(Where.NOWHERE, (), has_feed)
    if not removed:
        return VersionPlan(Where.ADDED_FILES, tuple(sorted(added)), has_feed)
    if not has_feed:
        raise ConfigurationError(
            f"version {version} of the table {place} changed or removed rows, and kept no changes",
            remedy=f"set {FEED_PROPERTY}=true on the table, and begin behind it with another checkpoint: since-version = {version + 1}",
        )
    noted = [unquote(action["cdc"]["path"]) for action in actions if "cdc" in action]
    gone = [
        unquote(action["remove"]["path"]) for action in actions if "remove" in action and action["remove"]["dataChange"]
    ]
    return VersionPlan(Where.FEED, tuple(sorted(noted or added + gone)), has_feed)
