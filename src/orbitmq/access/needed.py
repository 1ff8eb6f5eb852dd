"""What a caller needs: one of some actions on a resource.

Rules of this file
1. The topic of a retry or dead-letter queue stands for its group; publishing there is consuming in that group.
2. In topics that only the broker writes to, messages of all topics wait: who consumes from one of them needs all topics.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_send_forbidden
from orbitmq.protocol.remoting.requests import Action, ResourceType


class Needed(NamedTuple):
    """The caller needs one of `actions` on the resource; `name` None: on all resources of the type."""

    resource: ResourceType
    name: str | None
    actions: frozenset[Action]

    @property
    def text(self) -> str:
        return f"{self.resource.value}:{'*' if self.name is None else self.name}"


def judged_as(needed: Needed) -> Needed:
    """What is asked of the policies: for the topic of a retry or dead-letter queue its group, whose name may be empty; for consuming
    from a topic that only the broker writes to all topics."""
    name, actions = needed.name, needed.actions
    if needed.resource is not ResourceType.TOPIC or not name:
        return needed
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            # `+` ends the group in the retry topics of pop consumption, and stands in no name of a group.
            group = name[len(prefix) :].partition("+")[0]
            return Needed(ResourceType.GROUP, group, _OF_GROUP.get(actions, actions))
    if is_send_forbidden(name) and Action.SUB in actions:
        return needed._replace(name=None)
    return needed


_OF_GROUP: Final = {
    actions: actions - {Action.PUB} | {Action.SUB}
    for actions in (frozenset({Action.PUB}), frozenset({Action.PUB, Action.SUB, Action.GET}))
}
