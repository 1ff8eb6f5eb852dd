"""What Java knows of the classes of RocketMQ's servers, read once for each release and kept in a file, so that tests start them sooner.

A broker's start is mostly reading and checking classes: 2.2 to 2.9 s of CPU without the file and 1.5 to 1.8 with it, half the time until it
serves. Made by one start and stop of a broker; a name server finds its classes there too.

Rules of this file
1. Nothing but the time of a start depends on it: Java leaves aside what does not fit it, and where it cannot be made, a warning says so.
2. Servers that are measured start as RocketMQ's own scripts start them.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rig.toolchain import INTEROP, built

if TYPE_CHECKING:
    from collections.abc import Callable

    from rig.process import ServerProcess

ARCHIVE: Final = "servers.jsa"
BOOT_LIMIT_S: Final = 180


def kept_classes(release: str, rehearse: Callable[[Path, str], ServerProcess]) -> str:
    """The option that a JVM of that release is started with. `rehearse(folder, option)` starts a broker on an empty directory."""

    def build(target: Path) -> None:
        try:
            _rehearsed(target / ARCHIVE, rehearse)
        except (OSError, TimeoutError) as error:
            warnings.warn(
                f"classes of RocketMQ {release} are read at each start, and tests take longer: {error}", stacklevel=1
            )

    sources = [Path(__file__), INTEROP / "java" / "pom.xml"]
    archive = built(f"server-classes-{release}", sources, build) / ARCHIVE
    return f"-XX:SharedArchiveFile={archive}" if archive.exists() else ""


def _rehearsed(archive: Path, rehearse: Callable[[Path, str], ServerProcess]) -> None:
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        broker = rehearse(Path(folder), f"-XX:ArchiveClassesAtExit={archive}")
        end = time.monotonic() + BOOT_LIMIT_S
        while "boot success" not in broker.tail():
            if not broker.running or time.monotonic() > end:
                raise TimeoutError(f"the broker of the rehearsal does not start:\n{broker.tail()}")
            time.sleep(0.05)
        broker.stop()
