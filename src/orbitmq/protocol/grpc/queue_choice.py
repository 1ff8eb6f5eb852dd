"""The queue of a message group: the same for every client and every server, as long as the topic has as many queues.

Source: RocketMQ gRPC, SendMessage: queue choice. Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm".
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from orbitmq.limits.grpc import MESSAGE_GROUPS_KEPT_MAX
from orbitmq.protocol.javahash import java_hash

_STATE_MASK: Final = (1 << 64) - 1
_FACTOR: Final = 2_862_933_555_777_941_757


@lru_cache(MESSAGE_GROUPS_KEPT_MAX)
def queue_of_group(group: str, queues: int) -> int:
    """A number below `queues`, of which there is one at least. With one more a group keeps its queue or goes to the new one."""
    state = java_hash(group) & _STATE_MASK
    candidate = following = 0
    while following < queues:
        candidate = following
        state = (state * _FACTOR + 1) & _STATE_MASK
        following = int((candidate + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return candidate
