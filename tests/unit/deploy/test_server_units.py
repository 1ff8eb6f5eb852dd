"""The units of broker and name server, and the file for logrotate: systemd and logrotate understand them, and they say what is true of the
program. How their processes live is in tests/system/test_supervised.py."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from supervisors import DEPLOY, logrotate, systemd_analyze, unit
from typer.main import get_command

from orbitmq.cli.servers import brokers, nameservers
from orbitmq.cli.shared.exit_codes import ExitCode

UNITS = {name: DEPLOY / "systemd" / f"orbitmq-{name}.service" for name in ("broker", "nameserver")}
EXPOSURE_MAX = 30
"""In tenths of what systemd calls the exposure, from 0 to 10."""

each = pytest.mark.parametrize("name", list(UNITS))


@each
def test_systemd_has_nothing_against_the_units(name: str, tmp_path: Path) -> None:
    def said(text: str) -> str:
        file = tmp_path / UNITS[name].name
        file.write_text(text.replace("/opt/orbitmq/bin/orbitmq", sys.executable), encoding="utf-8")
        done = systemd_analyze("verify", file)
        return done.stdout + done.stderr

    text = UNITS[name].read_text(encoding="utf-8")
    assert said(text) == ""
    assert "Unknown key 'ExecReloads'" in said(text.replace("ExecReload", "ExecReloads"))


@each
def test_a_service_can_do_little_else_than_serve(name: str, tmp_path: Path) -> None:
    def exposed(file: Path) -> int:
        return systemd_analyze(
            "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", file
        ).returncode

    assert exposed(UNITS[name]) == 0
    open_to_all = tmp_path / UNITS[name].name
    text = UNITS[name].read_text(encoding="utf-8")
    open_to_all.write_text(re.sub(r"^(Protect|Private|System|Restrict)\w+=.*\n", "", text, flags=re.M))
    assert exposed(open_to_all) != 0


@each
def test_commands_and_folders_of_the_units_are_those_of_the_program(name: str) -> None:
    service = unit(UNITS[name])
    app = {"broker": brokers.app, "nameserver": nameservers.app}[name]
    known = {word for parameter in get_command(app).params for word in parameter.opts}
    program, command, *words = service["ExecStart"].split()
    assert (program, command) == ("/opt/orbitmq/bin/orbitmq", name)
    assert {word for word in words if word.startswith("--")} <= known
    assert f"/var/lib/{service['StateDirectory']}" == words[words.index("--data") + 1] == service["WorkingDirectory"]
    assert f"/var/log/{service['LogsDirectory']}/*.log" in (DEPLOY / "logrotate" / "orbitmq").read_text()


@each
def test_units_wait_for_what_a_server_says_and_do_not_repeat_what_cannot_help(name: str) -> None:
    service = unit(UNITS[name])
    assert service["Type"] == "notify"
    assert "WatchdogSec" not in service, "nothing is said to a watchdog"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["RestartPreventExitStatus"].split() == [str(int(ExitCode.USAGE)), str(int(ExitCode.IN_USE))]
    assert unit(UNITS[name], "Install") == {"WantedBy": "multi-user.target"}


def test_both_units_are_protected_alike() -> None:
    broker, names = ({**unit(file)} for file in UNITS.values())
    hardened = [key for key in broker if key.startswith(("Protect", "Private", "Restrict", "System", "Memory", "Lock"))]
    assert len(hardened) > 15
    assert {key: names.get(key) for key in hardened} == {key: broker[key] for key in hardened}


def test_logrotate_has_nothing_against_its_file(tmp_path: Path) -> None:
    text = (DEPLOY / "logrotate" / "orbitmq").read_text(encoding="utf-8")
    rules = tmp_path / "orbitmq"

    def said(text: str) -> tuple[int, bool]:
        rules.write_text(text, encoding="utf-8")
        rules.chmod(0o644)
        done = logrotate("--debug", "--state", tmp_path / "state", rules)
        return done.returncode, "error:" in done.stderr

    assert said(text) == (0, False)
    assert said(text.replace("maxsize 200M", "maxsize much")) == (1, True)
    for name in re.findall(r"(orbitmq-\w+\.service)", text):
        assert (DEPLOY / "systemd" / name).exists()
    assert "SIGUSR1" in text.partition("postrotate")[2]
