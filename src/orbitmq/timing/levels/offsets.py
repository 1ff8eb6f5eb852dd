"""The file `config/delayOffset.json`, and what a crash of RocketMQ leaves unclear in it.

The file holds, per level, the queue offset of the first message that is not delivered. RocketMQ writes it every ten
seconds: after its crash some messages behind that offset were delivered already.

Rules of this file
1. What orbitmq writes here never leads the log; what it reads here may lag behind it.
2. A delivery by RocketMQ is recognised by unique key, topic and queue, and only where these are unique: a repeat is
   better than a loss.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import StoreDamagedError
from orbitmq.protocol.properties import Property, decode_properties
from orbitmq.protocol.records import decode_record
from orbitmq.protocol.remoting.bodies import DataVersion
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config_files import ConfigFile
from orbitmq.store.dispatch import Dispatched

logger = logging.getLogger("orbitmq.timing")

OFFSETS_FILE = "delayOffset.json"

Address = tuple[str, str, str]
"""Unique key, real topic, real queue id."""


class LevelOffsets:
    """The file as a table level -> offset."""

    __slots__ = ("_clock", "_file", "_saved", "version")

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._saved: dict[int, int] | None = None
        self.version = DataVersion(counter=0, state_version=0, timestamp=clock.now_ms())
        """Version of the table as last saved or found."""

    def load(self) -> dict[int, int]:
        """The table that the file holds, whoever wrote it; its version is known from now on. Raises StoreDamagedError."""
        content = self._file.load() or {}
        try:
            self._saved = {int(level): int(offset) for level, offset in content.get("offsetTable", {}).items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreDamagedError(
                f"{self._file.path} does not hold offsets by level: {error}",
                remedy="restore it from its .bak; without it every delayed message still in the log would be repeated",
            ) from error
        version = content.get("dataVersion")
        counter = version.get("counter") if isinstance(version, dict) else None
        self.version = msgspec.structs.replace(self.version, counter=counter if isinstance(counter, int) else 0)
        return self._saved

    def save(self, table: dict[int, int]) -> None:
        """Durable on return; does nothing when the file holds that table already. Blocks."""
        if self._saved is None:
            try:
                self.load()
            except StoreDamagedError as error:
                logger.warning("%s is replaced, it cannot be read: %s", self._file.path, error)
        if table == self._saved:
            return
        version = DataVersion(counter=self.version.counter + 1, state_version=0, timestamp=self._clock.now_ms())
        offsets = {str(level): offset for level, offset in sorted(table.items())}
        self._file.save({"dataVersion": msgspec.to_builtins(version), "offsetTable": offsets})
        self.version, self._saved = version, dict(table)


def deliveries_by_rocketmq(log: CommitLog, sources: Sequence[int], later: Iterable[Dispatched]) -> list[int]:
    """Which of the records at the log positions `sources` were delivered by one of the records in `later`. What lies before a source
    did not deliver it: an earlier attempt at the same message has the same key, topic and queue."""
    addresses: dict[Address, list[int]] = {}
    for physical in sources:
        view = log.record(physical)
        if view is not None:
            address = _address(decode_properties(decode_record(view, body=False).properties))
            if address is not None:
                addresses.setdefault(address, []).append(physical)
    seen: Counter[Address] = Counter()
    for entry in later:
        if entry.unique_key is None:
            continue
        address = _address(decode_properties(entry.properties))
        if address in addresses and (entry.topic, str(entry.queue_id)) == (address[1], address[2]):
            seen[address] += entry.physical_offset > addresses[address][0]
    return [found[0] for address, found in addresses.items() if len(found) == 1 and seen[address] >= 1]


def _address(properties: dict[str, str]) -> Address | None:
    key, topic = properties.get(Property.UNIQ_KEY), properties.get(Property.REAL_TOPIC)
    queue = properties.get(Property.REAL_QID)
    return (key, topic, queue) if key and topic and queue else None
