"""What a store of RocketMQ may hold that this version cannot carry on: undecided transactions.

Rules of this file
1. Such a store is refused before anything listens, with what was found and what to do; it is never served as if those
   messages did not exist.
2. The store was recovered as at any start, and is left as after an orderly stop: RocketMQ carries on from there. Reading
   tools (`orbitmq store ...`) work on any store.

Source: RocketMQ store format; transaction check progress.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from orbitmq.errors import ConfigurationError
from orbitmq.protocol.names import HALF_TOPIC
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.files import Files
from orbitmq.store.queues import ConsumeQueues

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"


def refuse_unfinished(root: Path, files: Files, queues: ConsumeQueues) -> None:
    """Raises ConfigurationError when the store holds messages that only a feature not yet built can deliver."""
    undecided = undecided_halves(root, files, queues)
    if undecided:
        raise ConfigurationError(
            f"the store {root} holds up to {undecided} undecided transactions, which this version cannot finish yet",
            remedy="let RocketMQ finish them first, then stop it and start orbitmq; nothing was lost",
        )


def undecided_halves(root: Path, files: Files, queues: ConsumeQueues) -> int:
    """Half messages beyond the point up to which RocketMQ's check has seen every transaction decided."""
    queue = queues.get(HALF_TOPIC, 0)
    if queue is None:
        return 0
    table: dict[str, Any] = ConfigFile(files, root / "config" / "consumerOffset.json").load() or {}
    offsets = table.get("offsetTable", {}).get(f"{HALF_TOPIC}@{TRANSACTION_GROUP}", {})
    return max(queue.max_offset - max(int(offsets.get("0", 0)), queue.min_offset), 0)
