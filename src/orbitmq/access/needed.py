"""What a request needs: one of some actions on a resource, by the row of its code."""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.protocol.remoting.requests import Action, ResourceType


class Needed(NamedTuple):
    """The caller needs one of `actions` on the resource; `name` None: on all resources of the type."""

    resource: ResourceType
    name: str | None
    actions: frozenset[Action]

    @property
    def text(self) -> str:
        return f"{self.resource.value}:{'*' if self.name is None else self.name}"
