"""Requests 26 and 25: the configuration as text, and changes while running."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from orbitmq.errors import ConfigurationError, ProtectedKeyError
from orbitmq.protocol.java_properties import format_properties
from orbitmq.server.configuration.runtime_settings import RuntimeSettings, shown_settings
from orbitmq.server.configuration.settings import Overrides, Role, ServerSettings, load_settings


@pytest.fixture
def settings() -> ServerSettings:
    return ServerSettings(data=Path("data"))


def test_what_is_shown_reads_as_a_configuration_file(tmp_path: Path, settings: ServerSettings) -> None:
    values = shown_settings(settings)
    text = format_properties(sorted(values.items()))
    assert values["flushDiskType"] == "ASYNC_FLUSH"
    assert values["deleteWhen"] == "04"
    assert values["brokerRole"] == "ASYNC_MASTER"
    assert values["aclEnable"] == "false"
    assert "sendMessageThreadPoolNums" not in values

    config = tmp_path / "again.conf"
    config.write_text("\n".join(line for line in text.splitlines() if not line.endswith("=")), encoding="ascii")
    again = load_settings(roles=(Role.BROKER,), config=config, overrides=Overrides(data=Path("data")))
    assert (again.broker, again.store, again.listener) == (settings.broker, settings.store, settings.listener)
    assert again.warnings == ()


def test_a_change_takes_effect_and_is_saved_first(settings: ServerSettings) -> None:
    events: list[object] = []
    runtime = RuntimeSettings(settings, save=events.append, changed=lambda new: events.append(new.store))
    changes = runtime.update(b"fileReservedTime=24\ndeleteWhen=03\nmaxMessageSize=4194304\n")
    assert changes == {"fileReservedTime": "24", "deleteWhen": "03"}
    assert runtime.settings.store.file_reserved_time_hours == 24
    assert runtime.settings.store.delete_when == (3,)
    assert events == ["deleteWhen=03\nfileReservedTime=24\n", runtime.settings.store]

    runtime.update(b"fileReservedTime=48")
    assert events[2] == "deleteWhen=03\nfileReservedTime=48\n"


def test_a_change_that_cannot_be_saved_is_not_made(settings: ServerSettings) -> None:
    def full_disk(text: str) -> None:
        raise OSError(28, "No space left on device")

    runtime = RuntimeSettings(settings, save=full_disk)
    with pytest.raises(OSError, match="No space"):
        runtime.update(b"fileReservedTime=24")
    assert runtime.settings is settings


def test_a_change_can_be_unset_and_what_the_start_said_counts_again(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "orbitmq-changes.properties").write_text("fileReservedTime=20\n", encoding="ascii")
    file = tmp_path / "broker.conf"
    file.write_text("fileReservedTime=10\n")
    loaded = load_settings(roles=[Role.BROKER], config=file, overrides=Overrides(data=tmp_path))
    saved: list[str] = []
    runtime = RuntimeSettings(loaded, save=saved.append)
    runtime.update(b"deleteWhen=03\n")
    assert runtime.facts() == {
        "orbitmqChanged_deleteWhen": "04 (the default)",
        "orbitmqChanged_fileReservedTime": f"10 ({file}, line 1)",
    }
    assert runtime.update(b"orbitmq.unset=fileReservedTime;deleteWhen;fileReservedTime\n") == {
        "fileReservedTime": "10", "deleteWhen": "04",
    }  # fmt: skip
    assert runtime.settings.store.file_reserved_time_hours == 10
    assert saved[-1] == ""
    assert runtime.facts() == {}


def test_a_change_that_says_what_counts_anyway_is_forgotten_too(tmp_path: Path) -> None:
    kept = msgspec.structs.replace(ServerSettings(data=tmp_path), changed_while_running={"fileReservedTime": "72"})
    saved: list[str] = []
    runtime = RuntimeSettings(kept, save=saved.append)
    assert runtime.update(b"orbitmq.unset=fileReservedTime\n") == {}
    assert saved == [""]


def test_a_change_that_a_flag_overrules_is_not_said_to_count(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "orbitmq-changes.properties").write_text("fileReservedTime=20\n", encoding="ascii")
    flags = ["fileReservedTime=10"]
    runtime = RuntimeSettings(load_settings(roles=[Role.BROKER], flags=flags, overrides=Overrides(data=tmp_path)))
    assert runtime.settings.store.file_reserved_time_hours == 10
    assert runtime.facts() == {}
    runtime.update(b"fileReservedTime=11\n")
    assert runtime.facts() == {"orbitmqChanged_fileReservedTime": "10 (--set fileReservedTime)"}


def test_nothing_changes_when_values_are_the_present_ones(settings: ServerSettings) -> None:
    runtime = RuntimeSettings(settings, save=lambda text: pytest.fail("saved"))
    assert runtime.update(b"brokerRole=ASYNC_MASTER\nlistenPort=10911\nsendMessageThreadPoolNums=9\n") == {}


def test_no_answer_tells_whether_a_password_was_guessed(settings: ServerSettings) -> None:
    first = "initAuthenticationUser", '{"username":"admin","password":"a-long-secret"}'
    known = msgspec.structs.replace(settings, access=msgspec.structs.replace(settings.access, initial_user=first[1]))
    told = set()
    for guess in (first[1], first[1].replace("long", "wrong"), "no user at all", ""):
        with pytest.raises(ConfigurationError) as refused:
            RuntimeSettings(known).update(format_properties([(first[0], guess)]).encode())
        told.add(str(refused.value))
    assert len(told) == 1
    assert "takes effect only at the start" in told.pop()


@pytest.mark.parametrize("key", ["configBlackList", "brokerConfigPath", "rocketmqHome", "storePathRootDir", "mine"])
def test_protected_keys(settings: ServerSettings, key: str) -> None:
    runtime = RuntimeSettings(ServerSettings(data=Path("data"), config_black_list=("mine",)))
    with pytest.raises(ProtectedKeyError, match=f"{key} cannot be changed by request"):
        runtime.update(f"fileReservedTime=24\n{key}=x".encode())
    assert runtime.settings.store.file_reserved_time_hours == 72


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "names no key"),
        (b"# only a comment", "names no key"),
        (b"fileReservedTim=1", "did you mean fileReservedTime"),
        (b"fileReservedTime=soon", "give a whole number"),
        (b"flushDiskType=SYNC_FLUSH", "takes effect only at the start"),
        (b"autoCreateTopicEnable=false", "takes effect only at the start"),
        (b"duplicationEnable=true", "promises what is not built yet"),
        (b"orbitmq.unset=fileReservedTime", "was not changed while running"),
        (b"fileReservedTime=24\nlistenPort=1", "takes effect only at the start"),
        (b"a=\\u12", "is not a character"),
        (b"x" * 65_537, "bytes of configuration"),
    ],
)
def test_wrong_changes_change_nothing(settings: ServerSettings, body: bytes, problem: str) -> None:
    runtime = RuntimeSettings(settings)
    with pytest.raises(ConfigurationError, match=problem):
        runtime.update(body)
    assert runtime.settings is settings
