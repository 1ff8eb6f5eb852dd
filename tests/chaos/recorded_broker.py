"""`orbitmq broker` for the campaign of a pair: behind a network, perhaps with files that are recorded, so that its
power can be cut, or with a planted bug.

SIGUSR2 cuts the power: beside the data directory a directory `after` is what the disk may hold now, and the process ends at once.

    PAIR_RECORDED=SEED:BOOT  record; BOOT counts how often the machine was switched on
    PAIR_BUG=NAME,NAME       plant bugs of `pair_bugs`
    PAIR_LINK=HOST:PORT      slaves are told to come there

Rules of this file
1. What was there at the start counts as synced: a process that was killed before has left it to the system, which goes on.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final

from tests.chaos.pair_bugs import PLANTED
from tests.worlds.faults import Call, RecordingFiles

from orbitmq.cli.main import main
from orbitmq.server import lifecycle
from orbitmq.server.roles import broker_role
from orbitmq.server.roles.registration import BrokerIdentity
from orbitmq.store.files import OsFiles

AFTER: Final = "after"
COMMIT_LOG: Final = "commitlog"
SYNC_S: Final = (0.0, 0.05)
"""How long a sync of a slow disk takes."""


def record(data: Path, seed: str, *, slow: bool = False) -> None:
    """Data: its directory. slow: a sync takes its time, as at disks that are no SSD; what was written meanwhile is not on the disk."""
    made: list[RecordingFiles] = []
    chance = random.Random(seed)

    def recording() -> RecordingFiles:
        data.mkdir(parents=True, exist_ok=True)
        made.append(RecordingFiles(OsFiles(), data, boot=f"boot {seed}", plan=late if slow else None))
        return made[-1]

    def late(call: Call) -> None:
        if call.kind == "sync" and COMMIT_LOG in call.path.parts:
            time.sleep(chance.uniform(*SYNC_S))

    def cut_power(*_: object) -> None:
        for files in made:
            files.power_cut(data.with_name(AFTER), random.Random(seed))
        os._exit(9)

    lifecycle.OsFiles = recording  # type: ignore[assignment, misc]
    signal.signal(signal.SIGUSR2, cut_power)


def is_reached_at(link: str) -> None:
    def identity(cluster: str, name: str, broker_id: int, address: str, _: str) -> BrokerIdentity:
        return BrokerIdentity(cluster, name, broker_id, address, link)

    broker_role.BrokerIdentity = identity  # type: ignore[assignment, misc]


if __name__ == "__main__":
    for bug in filter(None, os.environ.get("PAIR_BUG", "").split(",")):
        PLANTED[bug]()
    is_reached_at(os.environ["PAIR_LINK"])
    if seed := os.environ.get("PAIR_RECORDED"):
        record(Path(sys.argv[sys.argv.index("--data") + 1]), seed)
    sys.exit(main())
