"""Stores of RocketMQ with what cannot be carried on here: each fact is found, counted, and refused with a remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.worlds.little_store import LittleStore
from typer.testing import CliRunner

from orbitmq.broker.saved_access import ACCESS_FILE
from orbitmq.cli.doctor.doctor_checks import Level, take_over
from orbitmq.cli.stores.stores import app
from orbitmq.errors import ConfigurationError
from orbitmq.protocol.names import HALF_TOPIC
from orbitmq.server.roles.takeover import FILE_RULES, QUEUE_RULES, facts_in_files, facts_in_queues, facts_of, refuse
from orbitmq.store.files import OsFiles

FILES = OsFiles()


class Queue(NamedTuple):
    """As much of a consume queue as is asked."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


def write(root: Path, name: str, content: object = "x") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def write_database(root: Path, name: str, of_keys: str = "000007.sst") -> None:
    """As much of a RocksDB database as is looked at."""
    for file in ("CURRENT", of_keys):
        write(root, f"{name}/{file}")


UNITS = "00000000000000000000"
FOUND: list[tuple[str, Callable[[Path], Any], str]] = [
    (
        "inner batches",
        lambda root: write(root, f"batchconsumequeue/B/0/{UNITS}"),
        "1 queues of batches stored as one record each",
    ),
    (
        "configuration in RocksDB",
        lambda root: [
            write_database(root, f"config/{name}") for name in ("topics", "subscriptionGroups", "consumerOffsets")
        ],
        r"3 RocksDB databases \(config/consumerOffsets, config/subscriptionGroups, config/topics\)",
    ),
    ("one database for all", lambda root: write_database(root, "config/rdb"), r"1 RocksDB databases \(config/rdb\)"),
    (
        "users in RocksDB",
        lambda root: write_database(root, "config/users", "000004.log"),
        r"users and policies that only RocketMQ reads \(config/users\)",
    ),
    ("queues in RocksDB", lambda root: write_database(root, "consumequeue"), r"1 RocksDB databases \(consumequeue\)"),
    (
        "an engine of a later release",
        lambda root: write_database(root, "rocksdbstore", "000004.log"),
        r"RocksDB databases \(rocksdbstore\)",
    ),
    ("POP by keys", lambda root: write(root, "kvStore/000004.log"), "kvStore with 1 files"),
    (
        "static topics",
        lambda root: write(root, "config/topicQueueMapping.json", {"topicQueueMappingDetailMap": {"T": {}, "U": {}}}),
        "2 static topics",
    ),
    ("DLedger", lambda root: write(root, "dledger-n0/data/0"), r"1 DLedger logs \(dledger-n0\)"),
    ("far table", lambda root: write(root, "orbitmq.far-table"), "the catalog of a cluster's far table"),
]


@pytest.mark.parametrize(("make", "says"), [row[1:] for row in FOUND], ids=[row[0] for row in FOUND])
def test_a_store_with_it_is_refused_with_what_how_much_and_the_remedy(
    tmp_path: Path, make: Callable[[Path], Any], says: str
) -> None:
    make(tmp_path)
    facts = facts_in_files(tmp_path, FILES)
    assert len(facts) == 1 or says.startswith("kvStore")
    with pytest.raises(ConfigurationError, match=says) as caught:
        refuse(tmp_path, facts)
    assert caught.value.remedy
    assert any(result.level is Level.FAIL and result.remedy for result in take_over(tmp_path))


def test_an_ordinary_store_is_taken_over(tmp_path: Path) -> None:
    for name in ("batchconsumequeue/T/0", "kvStore", "config/topics", "timerlog"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("CURRENT", "MANIFEST-000005", "OPTIONS-000009"):  # RocketMQ 5.5 makes a database and does not use it
        write(tmp_path, f"rocksdbstore/{name}")
    write(tmp_path, "rocksdbstore/000004.log", "")
    write_database(tmp_path, "config/users")
    write(tmp_path, f"config/{ACCESS_FILE}", {})  # which counts instead
    write(tmp_path, "config/topicQueueMapping.json", {"topicQueueMappingDetailMap": {}})
    store = LittleStore(tmp_path)
    store.send()
    store.close()
    assert facts_of(tmp_path, FILES) == []
    assert take_over(tmp_path) == []
    refuse(tmp_path, [])


@pytest.mark.parametrize("worked_off", [None, 0, 4, 6, 99])
def test_what_rocketmq_has_not_worked_off(tmp_path: Path, worked_off: int | None) -> None:
    if worked_off is not None:
        table = {"1": worked_off} if worked_off else {}
        write(tmp_path, "config/consumerOffset.json", {"offsetTable": {f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": table}})
    expected = max(6 - (worked_off or 0), 0)
    facts = facts_in_queues(tmp_path, FILES, [Queue(HALF_TOPIC, 1, 0, 6), Queue("Other", 0, 0, 3)])
    says = f"up to {expected} undecided transactions"
    assert [fact.found.startswith(says) for fact in facts] == ([True] if expected else [])


def test_store_check_names_what_a_start_would_refuse_and_the_store_is_sound(tmp_path: Path) -> None:
    store = LittleStore(tmp_path)
    store.send(HALF_TOPIC, 1)
    store.close()
    write(tmp_path, f"batchconsumequeue/T/0/{UNITS}")
    shown = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "1 queues of batches stored as one record" in text
    assert "up to 1 undecided transactions" in text


def test_undecided_transactions_in_the_queue_that_rocketmq_makes_are_carried_on(tmp_path: Path) -> None:
    assert facts_in_queues(tmp_path, FILES, [Queue(HALF_TOPIC, 0, 0, 6)]) == []


@pytest.mark.parametrize("content", ["[1]", "null", '{"offsetTable":null}', "{", ""])
def test_a_table_that_is_none_holds_nothing(tmp_path: Path, content: str) -> None:
    for name in ("topicQueueMapping", "consumerOffset"):
        write(tmp_path, f"config/{name}.json", content)
    assert facts_in_files(tmp_path, FILES) == []
    assert facts_in_queues(tmp_path, FILES, [Queue(HALF_TOPIC, 0, 0, 0)]) == []


def test_every_rule_has_its_row() -> None:
    assert len(FILE_RULES) + len(QUEUE_RULES) == 8
