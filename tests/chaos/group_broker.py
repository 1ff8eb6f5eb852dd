"""`orbitmq broker` for the campaign of a replicated group, perhaps with planted bugs or with a disk whose power can be cut.

GROUP_BUG=NAME,NAME            plant bugs of `group_bugs`
GROUP_RECORDED=SEED:NAME:BOOT  record what is written, as `recorded_broker` does
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from tests.chaos.group_bugs import PLANTED
from tests.chaos.recorded_broker import record

from orbitmq.cli.main import main

if __name__ == "__main__":
    with contextlib.ExitStack() as stack:
        for bug in filter(None, os.environ.get("GROUP_BUG", "").split(",")):
            stack.enter_context(PLANTED[bug]())
        if seed := os.environ.get("GROUP_RECORDED"):
            record(Path(sys.argv[sys.argv.index("--data") + 1]), seed, slow=True)
        sys.exit(main())
