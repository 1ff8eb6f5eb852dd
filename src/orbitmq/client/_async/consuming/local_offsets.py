"""Offsets of a broadcasting consumer: as those of a group, but in a file of this machine.

Rules of this file
1. The file belongs to a stable client id, `<ip>@<instance name>` with `DEFAULT` for a client without a name: the id by which brokers know
   the client is another one after each start.
2. It is written on the loop: some 10 us a queue, every few seconds.
3. A queue without an offset in the file starts as the consumer's policy says, which brokers are asked about.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.client._async.connecting.network import Network
from orbitmq.client._async.connecting.routes import Routes
from orbitmq.client._async.consuming.offsets import GroupOffsets
from orbitmq.client._async.runtime import log
from orbitmq.client.consuming.offsets_file import OffsetsFile, offsets_folder
from orbitmq.client.options import ConsumerOptions
from orbitmq.errors import ClientError
from orbitmq.protocol.remoting.bodies import MessageQueue


class LocalOffsets(GroupOffsets):
    """Offsets in memory and in a file. `stable_id` names the client in the file's path."""

    def __init__(self, network: Network, routes: Routes, group: str, options: ConsumerOptions, stable_id: str) -> None:
        super().__init__(network, routes, group, options)
        self._file = OffsetsFile(offsets_folder(options.offsets_folder, stable_id, group))

    def open(self) -> None:
        problem = self._file.open()
        if problem is not None:
            log.warning("offsets are those of the file before the last one, messages may come again: %s", problem)

    def close(self) -> None:
        self._file.close()

    async def persist(self) -> None:
        changed = self.table.changed()
        if not changed:
            return
        try:
            self._file.write(changed)
        except ClientError as error:
            log.warning("%s", error)
            return
        for queue, offset in changed.items():
            self.table.written(queue, offset)

    async def persist_surely(self, queues: Iterable[MessageQueue], timeout_ms: int) -> None:
        await self.persist()

    async def _stored(self, queue: MessageQueue) -> int | None:
        return self._file.offsets.get(queue)
