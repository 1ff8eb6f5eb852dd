"""`orbitmq` that notes how long each message is written before it is confirmed: `confirmed_broker.py TARGET broker --data DATA ...`.

At SIGUSR2 the delays since the last signal are written to TARGET, as a JSON list of [microseconds, messages]; the file is there at once or
not at all.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import deque
from pathlib import Path

import rigpath  # noqa: F401
from orbitmq.cli.main import main
from orbitmq.store.confirmation import Confirmation
from orbitmq.store.dispatch import Dispatched


def note(target: Path) -> None:
    """From now on, in this process."""
    waiting: deque[tuple[int, int, int]] = deque()
    delays: list[tuple[int, int]] = []
    written, look_again = Confirmation.written, Confirmation.look_again

    def noted_written(self: Confirmation, entries: list[Dispatched]) -> None:
        waiting.append((self._log.written_end, time.monotonic_ns(), len(entries)))
        written(self, entries)
        confirmed(self._log.readable_end)

    def noted_look(self: Confirmation) -> None:
        look_again(self)
        confirmed(self._log.readable_end)

    def confirmed(end: int) -> None:
        now_ns = time.monotonic_ns()
        while waiting and waiting[0][0] <= end:
            _, at_ns, count = waiting.popleft()
            delays.append(((now_ns - at_ns) // 1_000, count))

    def tell(*_: object) -> None:
        made = target.with_suffix(".new")
        made.write_text(json.dumps(delays))
        delays.clear()
        made.replace(target)

    Confirmation.written, Confirmation.look_again = noted_written, noted_look  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR2, tell)


if __name__ == "__main__":
    note(Path(sys.argv[1]))
    del sys.argv[1]
    sys.exit(main())
