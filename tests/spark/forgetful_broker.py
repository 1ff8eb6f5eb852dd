"""`orbitmq` with a planted bug: after a start its broker does not know what was sent before."""

from __future__ import annotations

import sys

from orbitmq.broker.idempotence.idempotence import Idempotence
from orbitmq.broker.idempotence.memory import KeyMemory
from orbitmq.cli.main import main

if __name__ == "__main__":
    KeyMemory.keep_all = lambda *_: None  # type: ignore[method-assign, assignment]
    Idempotence._learn = lambda *_: None  # type: ignore[method-assign, assignment]
    sys.exit(main())
