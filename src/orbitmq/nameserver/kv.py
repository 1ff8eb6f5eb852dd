"""The key-value table of a name server: namespace -> key -> text, kept in one file.

RocketMQ uses it for order configurations (namespace `ORDER_TOPIC_CONFIG`, key = topic). The file is RocketMQ's
`kvConfig.json`: `{"configTable":{namespace:{key:value}}}`, so a directory can change hands in both directions.

Rules of this file
1. A change is staged in memory and becomes durable with `commit`, one file write for all changes of a loop turn.
   Nobody may be told that a change succeeded before `commit` returned.
2. When the write fails, every change since the last good write is taken back: memory and file agree again.
3. This module opens no files. `KvFile` is handed in; `None` keeps the table in memory only.
"""

from __future__ import annotations

from typing import Final, Protocol

from orbitmq.errors import ProtocolError
from orbitmq.limits.nameserver import NAMESERVER_KV_BYTES_MAX
from orbitmq.protocol.remoting import fastjson

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""Namespace of the order configurations: topic -> `brokerName:queues;brokerName:queues`."""

_ENTRY_OVERHEAD_BYTES: Final = 16
"""Charged per entry, so that empty texts are not free."""


class KvFile(Protocol):
    """Where the table is kept."""

    def load(self) -> bytes | None:
        """The file's content, None when there is none yet."""
        ...

    def save(self, content: bytes) -> None:
        """Replace the file atomically and durably, or raise OSError and leave the old one."""
        ...


class KvFullError(ProtocolError):
    """The table would pass its size limit; answered to the sender, nothing changed."""


class KvTable:
    """Namespaces of texts, durable after `commit`."""

    __slots__ = ("_bytes", "_file", "_tables", "_undo", "changes")

    def __init__(self, file: KvFile | None = None) -> None:
        self._file = file
        self._tables: dict[str, dict[str, str]] = {}
        self._undo: list[tuple[str, str, str | None]] = []
        self.changes = 0
        """Grows with every change; lets readers keep what they derived from the table."""
        content = file.load() if file is not None else None
        if content:
            self._tables = _decode(content)
        self._bytes = sum(
            _name_size(namespace) + sum(_entry_size(key, value) for key, value in table.items())
            for namespace, table in self._tables.items()
        )

    @property
    def size_bytes(self) -> int:
        """Names, keys and values together."""
        return self._bytes

    @property
    def pending(self) -> bool:
        """Whether changes wait for `commit`."""
        return bool(self._undo)

    def get(self, namespace: str, key: str) -> str | None:
        table = self._tables.get(namespace)
        return table.get(key) if table is not None else None

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """The whole namespace, to be read only; None when it was never written."""
        return self._tables.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Stage `value`. KvFullError when the table would become too large; empty namespaces count."""
        before = self.get(namespace, key)
        growth = _entry_size(key, value) - (0 if before is None else _entry_size(key, before))
        if namespace not in self._tables:
            growth += _name_size(namespace)
        if self._bytes + growth > NAMESERVER_KV_BYTES_MAX:
            raise KvFullError(
                f"the KV table holds {self._bytes} bytes and may hold {NAMESERVER_KV_BYTES_MAX}",
                remedy="delete entries that are not needed any more",
            )
        self._undo.append((namespace, key, before))
        self._set(namespace, key, value)

    def delete(self, namespace: str, key: str) -> None:
        """Stage the removal; nothing happens when there is no such entry."""
        before = self.get(namespace, key)
        if before is not None:
            self._undo.append((namespace, key, before))
            self._set(namespace, key, None)

    def commit(self) -> None:
        """Make all staged changes durable. OSError: none of them happened."""
        if not self._undo:
            return
        if self._file is not None:
            try:
                self._file.save(self.encode())
            except OSError:
                for namespace, key, before in reversed(self._undo):
                    self._set(namespace, key, before)
                self._undo.clear()
                raise
        self._undo.clear()

    def encode(self) -> bytes:
        """The table as the file holds it."""
        return fastjson.dumps({"configTable": self._tables})

    def _set(self, namespace: str, key: str, value: str | None) -> None:
        self.changes += 1
        table = self._tables.get(namespace)
        if table is None:
            table = self._tables[namespace] = {}
            self._bytes += _name_size(namespace)
        before = table.pop(key, None)
        if before is not None:
            self._bytes -= _entry_size(key, before)
        if value is not None:
            table[key] = value
            self._bytes += _entry_size(key, value)


def _name_size(namespace: str) -> int:
    return _ENTRY_OVERHEAD_BYTES + len(namespace)


def _entry_size(key: str, value: str) -> int:
    return _ENTRY_OVERHEAD_BYTES + len(key) + len(value)


def _decode(content: bytes) -> dict[str, dict[str, str]]:
    """ProtocolError when the file is not what `encode` (or RocketMQ) writes."""
    document = fastjson.loads(content)
    tables = document.get("configTable", {}) if isinstance(document, dict) else None
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ProtocolError(
            "the KV file holds no table of namespaces",
            remedy="restore kvConfig.json from a copy, or remove it to start with an empty table",
        )
    return {
        str(namespace): {str(key): str(value) for key, value in table.items() if value is not None}
        for namespace, table in tables.items()
    }
