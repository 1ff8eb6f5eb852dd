"""Facts about a store directory as it lies on the disk.

Rules of this file
1. Reading only, with the store's own inspection; sizes are taken from the files, not from any configuration.
2. Nothing is judged here: that is `store check`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.cli.instants import instant
from orbitmq.errors import StoreError

if TYPE_CHECKING:
    from orbitmq.store.inspection import Sequence


def commit_log(root: Path) -> Sequence:
    """The commit log files of the store at `root`; StoreError when there is no commit log."""
    from orbitmq.store.files import OsFiles
    from orbitmq.store.inspection import read_sequence

    folder = root / "commitlog"
    if not folder.is_dir():
        raise StoreError(f"{root} holds no commit log", remedy="name the root of a store, the folder above `commitlog`")
    return read_sequence(OsFiles(), folder)


def store_stat(root: Path) -> dict[str, object]:
    """Facts about a store. Cost: every file name, and the last file of every queue up to its end."""
    from orbitmq.store.checkpoint import Checkpoint
    from orbitmq.store.files import OsFiles
    from orbitmq.store.inspection import index_names, read_queues

    files = OsFiles()
    log = commit_log(root)
    page = root / "checkpoint"
    checkpoint = Checkpoint.decode(page.read_bytes()) if page.is_file() else Checkpoint()
    stored = [path.stat() for path in root.rglob("*") if path.is_file()]
    queues: list[dict[str, object]] = [
        {
            "topic": queue.topic,
            "queue": queue.queue_id,
            "files": len(queue.sequence.files),
            "first_unit": queue.first_unit,
            "max_offset": queue.max_offset(),
        }
        for queue in read_queues(files, root)
    ]
    return {
        "root": str(root),
        "closed_orderly": not (root / "abort").exists(),
        "commit_log_files": len(log.files),
        "commit_log_file_bytes": log.files[0].size if log.files else 0,
        "commit_log_start": log.start,
        "commit_log_files_end": log.end,
        "flushed_up_to": instant(checkpoint.physic_msg_timestamp),
        "dispatched_up_to": instant(checkpoint.logics_msg_timestamp),
        "topic_count": len({row["topic"] for row in queues}),
        "queue_count": len(queues),
        "index_files": len(index_names(files, root)),
        "files": len(stored),
        "bytes": sum(entry.st_size for entry in stored),
        "bytes_on_disk": sum(entry.st_blocks * 512 for entry in stored),
        "queues": queues,
    }
