"""The files of a stored index of pending timers: are they whole? Read without changing them.

The index is a cache that a start makes again where it is damaged, so a finding here costs time and no message.

Rules of this file
1. Sums say what is whole. That the entries are those of the log is not asked: the broker compares a witness at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orbitmq.errors import StoreDamagedError
from orbitmq.store.files import Files
from orbitmq.timing.index.directory import MANIFEST, IndexDirectory
from orbitmq.timing.index.journal import load_journal
from orbitmq.timing.index.run import Run

Tell = Callable[[Path, str], None]


def check_index(files: Files, root: Path, find: Tell, note: Tell) -> None:
    """Reads every byte of the runs, 1 ms a megabyte. `find` is told of damage, `note` of what a kill leaves behind."""
    directory = IndexDirectory(files, root)
    if not directory.exists:
        return
    manifest, journals = directory.load()
    if manifest is None:
        if files.exists(directory.path / MANIFEST):
            find(directory.path / MANIFEST, "is damaged: the index of timers is made again at the next start")
    else:
        for listed in manifest.runs:
            path = directory.run_path(listed.number)
            try:
                problem = Run(files, path).check()
            except (StoreDamagedError, OSError) as error:
                problem = str(error)
            if problem is not None:
                find(path, f"{problem}; what it held is collected from the log at the next start")
    for number in journals:
        if manifest is None or number >= manifest.journals_from:
            path = directory.journal_path(number)
            loaded = load_journal(files, path)
            if loaded is None:
                note(path, "holds no whole block")
            elif loaded.good_bytes < files.file_size(path):
                note(path, f"ends in {files.file_size(path) - loaded.good_bytes} bytes that are no whole block")
