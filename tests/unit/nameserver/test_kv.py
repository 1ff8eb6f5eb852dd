"""The key-value table and its file."""

from __future__ import annotations

import json

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.nameserver import kv
from orbitmq.nameserver.kv import KvFullError, KvTable


class MemoryFile:
    def __init__(self, content: bytes | None = None) -> None:
        self.content = content
        self.saves = 0
        self.broken = False

    def load(self) -> bytes | None:
        return self.content

    def save(self, content: bytes) -> None:
        if self.broken:
            raise OSError("disk full")
        self.saves += 1
        self.content = content


def test_values_live_in_namespaces() -> None:
    table = KvTable()
    assert table.get("N", "k") is None
    assert table.namespace("N") is None
    table.put("N", "k", "v")
    table.put("N", "k", "w")
    table.put("M", "k", "v")
    assert table.get("N", "k") == "w"
    table.delete("N", "k")
    table.delete("N", "k")
    assert table.get("N", "k") is None
    assert table.namespace("N") == {}


def test_file_has_the_form_of_rocketmq_and_is_read_back() -> None:
    file = MemoryFile()
    table = KvTable(file)
    table.put("ORDER_TOPIC_CONFIG", "T", "b-a:8;b-b:8")
    table.put("N", "k ä", 'quote " and \n line')
    table.commit()
    assert file.content is not None
    assert json.loads(file.content) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"T": "b-a:8;b-b:8"}, "N": {"k ä": 'quote " and \n line'}}
    }
    assert KvTable(file).namespace("N") == {"k ä": 'quote " and \n line'}


def test_all_changes_of_a_turn_are_one_write() -> None:
    file = MemoryFile()
    table = KvTable(file)
    table.commit()
    assert file.saves == 0
    table.put("N", "a", "1")
    table.put("N", "b", "2")
    assert table.pending
    table.commit()
    table.commit()
    assert file.saves == 1
    assert not table.pending


def test_failed_write_takes_everything_since_the_last_one_back() -> None:
    file = MemoryFile()
    table = KvTable(file)
    table.put("N", "kept", "1")
    table.commit()
    file.broken = True
    table.put("N", "kept", "2")
    table.put("N", "kept", "3")
    table.put("N", "new", "1")
    table.delete("N", "kept")
    with pytest.raises(OSError, match="disk full"):
        table.commit()
    assert table.namespace("N") == {"kept": "1"}
    file.broken = False
    table.commit()
    assert file.saves == 1


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "NAMESERVER_KV_BYTES_MAX", 100)
    table = KvTable()
    table.put("N", "k", "v" * 50)
    with pytest.raises(KvFullError):
        table.put("N", "k2", "v" * 50)
    table.put("N", "k", "w" * 60)
    with pytest.raises(KvFullError):
        table.put("N" * 20, "k", "")
    table.delete("N", "k")
    table.put("N", "k2", "v" * 60)


def test_size_counts_what_the_file_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "NAMESERVER_KV_BYTES_MAX", 100)
    table = KvTable(MemoryFile(b'{"configTable":{"N":{"k":"' + b"v" * 60 + b'"}}}'))
    with pytest.raises(KvFullError):
        table.put("N", "k2", "v")


@pytest.mark.parametrize("content", [b"[]", b'{"configTable":[]}', b'{"configTable":{"N":1}}', b"{"])
def test_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        KvTable(MemoryFile(content))


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"configTable":{}}'])
def test_empty_files(content: bytes | None) -> None:
    table = KvTable(MemoryFile(content))
    table.put("N", "k", "v")
    assert table.get("N", "k") == "v"
