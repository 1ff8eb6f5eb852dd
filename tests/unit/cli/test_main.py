"""Exit codes, and errors as one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from scripted_server import Ran

from orbitmq import errors
from orbitmq.cli.shared.exit_codes import ExitCode, exit_code_of

Run = Callable[..., Ran]


def test_version(orbitmq: Run) -> None:
    ran = orbitmq("version", "--output", "json")
    assert ran.code == 0
    assert json.loads(ran.out)["speaks_as_rocketmq"] == "V5_3_3"


def test_the_version_as_other_programs_tell_it(orbitmq: Run) -> None:
    ran = orbitmq("--version")
    assert ran.code == 0
    assert ran.out.startswith("orbitmq 0.")
    assert ran.out.count("\n") == 1


@pytest.mark.parametrize("arguments", [("nonsense",), ("topic", "show"), ("serve", "--broker-port", "70000")])
def test_usage_errors(orbitmq: Run, arguments: tuple[str, ...]) -> None:
    assert orbitmq(*arguments).code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigurationError("x"), 2),
        (errors.RequestTimeoutError("x"), 3),
        (errors.RemoteError(16, "x"), 4),
        (errors.RouteNotFoundError("x"), 5),
        (errors.NotFoundError("x"), 5),
        (errors.MessageIllegalError("x"), 2),
        (errors.StoreLockedError("x"), 6),
        (errors.StoreDamagedError("x"), 1),
        (errors.OrbitError("x"), 1),
    ],
)
def test_exit_codes_of_errors(error: errors.OrbitError, code: int) -> None:
    assert exit_code_of(error) == code


def test_an_unreachable_server_is_exit_code_3_and_one_line(orbitmq: Run) -> None:
    ran = orbitmq("topic", "list", "--namesrv", "127.0.0.1:1", "--timeout-ms", "500")
    assert ran.code == ExitCode.UNREACHABLE
    assert ran.err.startswith("error: ")
    assert "127.0.0.1:1" in ran.err
    assert ran.err.count("\n") == 1


def test_a_wrong_setting_stops_the_start_before_anything_is_made(orbitmq: Run, tmp_path: Path) -> None:
    ran = orbitmq("serve", "--data", tmp_path / "d", "--set", "enableDLegerCommitLog=true")
    assert ran.code == ExitCode.USAGE
    assert "promises what is not built yet" in ran.err
    assert not (tmp_path / "d").exists()


def test_an_unknown_setting_names_the_nearest(orbitmq: Run, tmp_path: Path) -> None:
    ran = orbitmq("serve", "--data", tmp_path / "d", "--set", "flushDiskTyp=SYNC_FLUSH")
    assert ran.code == ExitCode.USAGE
    assert "did you mean flushDiskType?" in ran.err


def test_a_configuration_file_is_checked_without_a_server(orbitmq: Run, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("mapedFileSizeCommitLog=1024\nbrokerName=a\n")
    ran = orbitmq("config", "check", file)
    assert (ran.code, ran.out.split()[4:7]) == (0, ["mapedFileSizeCommitLog", "1024", "no"])
    file.write_text("brokerNam=a\n")
    ran = orbitmq("config", "check", file)
    assert ran.code == 1
    assert "stops the start" in ran.out
    assert "did you mean brokerName?" in ran.err


def test_a_configuration_file_that_is_missing(orbitmq: Run, tmp_path: Path) -> None:
    ran = orbitmq("broker", "--data", tmp_path / "d", "--config", tmp_path / "none.conf")
    assert ran.code == ExitCode.USAGE
    assert "none.conf" in ran.err


def test_closed_output_is_no_error() -> None:
    command = [sys.executable, "-m", "orbitmq.cli.main", "version"]
    subprocess.run(["/bin/sh", "-c", 'exec "$@" >&- 2>&-', "sh", *command], check=True)
