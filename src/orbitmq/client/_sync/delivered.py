"""What a delivered message keeps outside the loop: its values, and whether the program has acknowledged it.

Rules of this file
1. Values are shared with the message on the loop, not copied.
2. An acknowledgement does not wait for the loop: it looks whether the message is still held, which any thread may, and hands it in. So
   its answer can be older than the loop's own by an instant; like every acknowledgement it is written to the broker later, and until
   then the message may come again.
"""

from __future__ import annotations

from orbitmq.client._async.consuming import delivery
from orbitmq.client._async.consuming.delivery import Settlement
from orbitmq.client._sync.loop_thread import LoopThread
from orbitmq.client.stored import StoredMessage


class Delivered(StoredMessage):
    """The values of a delivered message, and its acknowledgement."""

    __slots__ = ("_acknowledged", "_loop", "_twin")

    def __init__(self, twin: delivery.ReceivedMessage, loop_thread: LoopThread) -> None:
        for name in StoredMessage.__slots__:
            setattr(self, name, getattr(twin, name))
        self._twin = twin
        self._loop = loop_thread
        self._acknowledged = False

    @property
    def settlement(self) -> Settlement:
        """What became of it here."""
        known = self._twin.settlement
        return Settlement.ACKED if self._acknowledged and known is Settlement.PENDING else known

    def _ack(self) -> bool:
        if self.settlement is Settlement.PENDING and self._twin.held:
            self._loop.acknowledge(self._twin)
            self._acknowledged = True
            return True
        return self._loop.run(self._twin.ack())
