"""The offsets file of a broadcasting consumer: whole or not at all, RocketMQ's form, one writer."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.client.consuming.offsets_file import OffsetsFile, decode_offsets, encode_offsets, offsets_folder
from orbitmq.errors import ClientError, ConfigurationError, ProtocolError
from orbitmq.protocol.remoting.bodies import MessageQueue

ONE, TWO = MessageQueue("T", "b-a", 0), MessageQueue("T", "b-a", 1)


@pytest.fixture
def file(tmp_path: Path) -> OffsetsFile:
    return OffsetsFile(tmp_path / "me" / "g")


def reopened(file: OffsetsFile) -> dict[MessageQueue, int]:
    file.close()
    again = OffsetsFile(file.path.parent)
    again.open()
    again.close()
    return again.offsets


def test_rocketmqs_place_and_form() -> None:
    assert offsets_folder("/x", "10.0.0.1@DEFAULT", "g") == Path("/x/10.0.0.1@DEFAULT/g")
    assert offsets_folder(None, "i", "g") == Path.home() / ".rocketmq_offsets" / "i" / "g"
    assert encode_offsets({ONE: 7}) == b'{"offsetTable":{{"brokerName":"b-a","queueId":0,"topic":"T"}:7}}'


def test_a_new_consumer_has_no_offsets(file: OffsetsFile) -> None:
    assert file.open() is None
    assert file.offsets == {}


def test_what_is_written_is_read(file: OffsetsFile) -> None:
    file.open()
    file.write({ONE: 1, TWO: 2})
    file.write({ONE: 5})  # the other queue is another's now, or comes back
    assert reopened(file) == {ONE: 5, TWO: 2}


@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 100, b'{"offsetTable":3}'])
def test_a_damaged_file_gives_way_to_the_one_before(file: OffsetsFile, damage: bytes) -> None:
    file.open()
    file.write({ONE: 1})
    file.write({ONE: 2})
    file.path.write_bytes(damage)
    file.close()
    again = OffsetsFile(file.path.parent)
    problem = again.open()
    assert problem is not None
    assert "offsets.json" in problem
    assert again.offsets == {ONE: 1}
    again.write({ONE: 3})
    assert reopened(again) == {ONE: 3}


def test_a_missing_file_gives_way_to_the_one_before(file: OffsetsFile) -> None:
    file.open()
    file.write({ONE: 1})
    file.write({ONE: 2})
    file.path.unlink()
    assert reopened(file) == {ONE: 1}


def test_two_damaged_files_are_an_error_and_no_new_start(file: OffsetsFile) -> None:
    file.open()
    file.write({ONE: 1})
    file.write({ONE: 2})
    file.path.write_bytes(b"rubbish")
    file.path.with_name("offsets.json.bak").write_bytes(b"rubbish")
    file.close()
    with pytest.raises(ClientError, match="cannot be read"):
        OffsetsFile(file.path.parent).open()


def test_one_consumer_at_a_time(file: OffsetsFile) -> None:
    file.open()
    with pytest.raises(ConfigurationError, match="another broadcasting consumer"):
        OffsetsFile(file.path.parent).open()
    file.close()
    other = OffsetsFile(file.path.parent)
    other.open()
    other.close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "me").write_bytes(b"a file where a folder should be")
    with pytest.raises(ConfigurationError, match="offsets_folder"):
        OffsetsFile(tmp_path / "me" / "g").open()


def test_a_failed_write_leaves_the_file_as_it_was(file: OffsetsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.open()
    file.write({ONE: 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ClientError, match="No space left"):
        file.write({ONE: 2})
    monkeypatch.undo()
    assert file.offsets == {ONE: 1}
    assert reopened(file) == {ONE: 1}


def test_what_is_no_table_of_offsets_is_refused() -> None:
    for data in (b" \n", b"[1]", b'{"offsetTable":{"a":1}}'):
        with pytest.raises(ProtocolError):
            decode_offsets(data)
