"""Settings of a name server that are changed by request, kept, and forgotten again."""

from __future__ import annotations

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.runtime_config import KeptChanges, RuntimeConfig


class Started:
    """A name server whose file says 10 seconds, with a change of an earlier run that says 20."""

    def __init__(self) -> None:
        self.saved: list[str] = []
        config = NameServerConfig(wait_seconds_for_service=20)
        said = {"waitSecondsForService": ("10", "namesrv.conf, line 1"), "orderMessageEnable": ("false", "the default")}
        self.runtime = RuntimeConfig(
            config, KeptChanges({"waitSecondsForService": "20"}, said.__getitem__, self.saved.append)
        )


def test_what_was_changed_is_shown_with_what_counts_without_it() -> None:
    runtime = Started().runtime
    runtime.update(b"orderMessageEnable=true\n")
    shown = runtime.shown().splitlines()
    assert shown == sorted(shown)
    assert "waitSecondsForService=20" in shown
    assert [line for line in shown if line.startswith("orbitmqChanged")] == [
        "orbitmqChanged=orderMessageEnable;waitSecondsForService",
        "orbitmqChanged_orderMessageEnable=false (the default)",
        "orbitmqChanged_waitSecondsForService=10 (namesrv.conf, line 1)",
    ]


def test_a_change_that_a_flag_overrules_is_not_said_to_count() -> None:
    config = NameServerConfig(wait_seconds_for_service=7)
    kept = KeptChanges({"waitSecondsForService": "20"}, lambda name: ("7", "--set waitSecondsForService"), print)
    assert "orbitmqChanged_" not in RuntimeConfig(config, kept).shown()


def test_a_change_can_be_unset_and_what_the_start_said_counts_again() -> None:
    started = Started()
    started.runtime.update(b"orderMessageEnable=true\n")
    started.runtime.update(b"orbitmq.unset=waitSecondsForService;orderMessageEnable;waitSecondsForService\n")
    assert started.runtime.config == NameServerConfig(wait_seconds_for_service=10)
    assert started.saved[-1] == ""
    assert "orbitmqChanged=\n" in started.runtime.shown()


def test_a_change_that_says_what_counts_anyway_is_forgotten_too() -> None:
    started = Started()
    started.runtime.update(b"waitSecondsForService=10\n")
    assert "orbitmqChanged_" not in started.runtime.shown()
    started.runtime.update(b"orbitmq.unset=waitSecondsForService\n")
    assert started.saved == ["waitSecondsForService=10\n", ""]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"orbitmq.unset=orderMessageEnable", "was not changed while running"),
        (b"orbitmq.unset=noSuchKey", "noSuchKey was not changed while running"),
        (b"orbitmq.unset=waitSecondsForService\nwaitSecondsForService=1", "set and unset by one request"),
        (b"orbitmq.unset=waitSecondsForService\nlistenPort=1", "takes effect only at the start"),
        (b"x" * 65_537, "65537 bytes"),
    ],
)
def test_wrong_changes_change_nothing(body: bytes, problem: str) -> None:
    started = Started()
    with pytest.raises(ConfigurationError, match=problem):
        started.runtime.update(body)
    assert started.runtime.config.wait_seconds_for_service == 20
    assert started.saved == []


def test_without_a_place_to_keep_it_a_change_can_be_unset_as_well() -> None:
    runtime = RuntimeConfig(NameServerConfig())
    runtime.update(b"orderMessageEnable=true\n")
    assert "orbitmqChanged_orderMessageEnable=false (the start)\n" in runtime.shown()
    runtime.update(b"orbitmq.unset=orderMessageEnable\n")
    assert runtime.config == NameServerConfig()
