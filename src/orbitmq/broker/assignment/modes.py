"""How each group reads each topic, where somebody has said so: by pull or by pop (`config/messageRequestMode.json`).

Source: RocketMQ broker, server-side assignment; store formats, configuration tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import msgspec

from orbitmq.broker.offsets import SEPARATOR
from orbitmq.broker.settings import BrokerSettings
from orbitmq.broker.table_records.changes import RecordedSavedTable
from orbitmq.broker.table_saving import TableFile, read_table
from orbitmq.clock import Clock
from orbitmq.limits.broker import REQUEST_MODES_MAX
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.protocol.remoting.bodies import (
    DataVersion,
    MessageRequestMode,
    MessageRequestModes,
    SetMessageRequestModeRequest,
)

FILE = "messageRequestMode.json"


class RequestModeTable(RecordedSavedTable):
    """Topic -> group -> mode."""

    record_name: ClassVar[str] = "requestModes"

    def __init__(self, settings: BrokerSettings, file: TableFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self._settings = settings
        self._modes: dict[str, dict[str, SetMessageRequestModeRequest]] = {}
        self._count = 0

    def load(self) -> None:
        """Raises `StoreDamagedError` for an unusable file."""
        document = self._file.load()
        if document is not None:
            saved = read_table(document, MessageRequestModes, FILE, "a table of request modes")
            self._modes = saved.message_request_mode_map
            self._count = sum(map(len, self._modes.values()))

    def _frozen(self) -> Callable[[], Mapping[str, object]]:
        modes = {topic: dict(groups) for topic, groups in self._modes.items()}
        return lambda: {"messageRequestModeMap": msgspec.to_builtins(modes)}

    def put(self, mode: SetMessageRequestModeRequest) -> bool:
        """False when there is no room for another pair of topic and group."""
        is_new = mode.consumer_group not in self._modes.get(mode.topic, {})
        if is_new and self._count >= REQUEST_MODES_MAX:
            return False
        self._count += is_new
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._changed_key(f"{mode.topic}{SEPARATOR}{mode.consumer_group}")
        return True

    def recorded_keys(self) -> Iterable[str]:
        return [f"{topic}{SEPARATOR}{group}" for topic, groups in self._modes.items() for group in groups]

    def recorded_value(self, key: str) -> bytes | None:
        topic, _, group = key.partition(SEPARATOR)
        mode = self._modes.get(topic, {}).get(group)
        return None if mode is None else mode.encode()

    def _take_one(self, key: str, value: bytes | None) -> None:
        topic, _, group = key.partition(SEPARATOR)
        groups = self._modes.setdefault(topic, {})
        self._count -= groups.pop(group, None) is not None
        if value is not None:
            groups[group] = SetMessageRequestModeRequest.decode(value)
            self._count += 1

    def is_newer_than(self, version: DataVersion | None) -> bool:
        """Never: RocketMQ gives the file no version."""
        return False

    def of(self, topic: str, group: str) -> tuple[MessageRequestMode, int]:
        """The mode, and the share number of pops. Retry topics are always pulled."""
        if topic.startswith(RETRY_PREFIX):
            return MessageRequestMode.PULL, 0
        mode = self._modes.get(topic, {}).get(group)
        if mode is not None:
            return mode.mode, mode.pop_share_queue_num
        settings = self._settings
        return MessageRequestMode(settings.default_message_request_mode), settings.default_pop_share_queue_num

    def all(self) -> MessageRequestModes:
        return MessageRequestModes(message_request_mode_map=self._modes)
