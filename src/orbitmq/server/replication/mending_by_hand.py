"""A command mends the log of a store that nobody serves, from one broker that it names.

Rules of this file
1. All of the log is looked at. What one copy does not give stays as it is, and what is behind it is mended all the same.
2. Nobody has to know the name of the group: the id of the log says which it is.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from orbitmq.clock import SystemClock
from orbitmq.errors import StoreError
from orbitmq.server.access.named_users import inner_credentials
from orbitmq.server.configuration.settings import ServerSettings
from orbitmq.server.connections.outbound import Calling
from orbitmq.server.encryption.certificates import CallsCertificates
from orbitmq.server.replication.asking import log_range
from orbitmq.server.replication.stopped_log import DamagedPlace, StoppedLog
from orbitmq.store.files import OsFiles


async def mend_by_hand(
    settings: ServerSettings, log_directory: Path | None, source: str, *, dry_run: bool
) -> list[DamagedPlace]:
    """What was damaged. The settings say how others are called; the size of files is that of the files. Raises OrbitError; OSError."""
    files, root = OsFiles(), settings.data
    directory = log_directory or root / "commitlog"
    sizes = [files.file_size(directory / name) for name in files.list_dir(directory) if name.isdigit()]
    stopped = StoppedLog(
        files, root, log_directory, max(sizes, default=0) or settings.store.mapped_file_size_commit_log
    )
    try:
        if dry_run and stopped.lost:
            return stopped.lost_places()
        if dry_run:
            return [place for stretch in stopped.stretches() for place in stopped.places(*stretch)]
        if not stopped.has_copies:
            raise StoreError(f"{root} has no copies: it never had a slave of ours, and never was one")
        calling = Calling(CallsCertificates(settings.tls).context, inner_credentials(settings.access))
        copies = {source: partial(log_range, source, clock=SystemClock(), calling=calling)}
        found = await stopped.bring(copies, group="")
        if all(place.came_from for place in found):
            for stretch in stopped.stretches():
                found += await stopped.mend(*stretch, copies, group="")
        return found
    finally:
        stopped.close()
