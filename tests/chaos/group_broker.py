"""`orbitmq broker` for the campaign of a replicated group, perhaps with planted bugs: GROUP_BUG=NAME,NAME."""

from __future__ import annotations

import contextlib
import os
import sys

from tests.chaos.group_bugs import PLANTED

from orbitmq.cli.main import main

if __name__ == "__main__":
    with contextlib.ExitStack() as stack:
        for bug in filter(None, os.environ.get("GROUP_BUG", "").split(",")):
            stack.enter_context(PLANTED[bug]())
        sys.exit(main())
