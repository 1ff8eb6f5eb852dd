"""The unit of systemd and the manifest of Kubernetes: they parse, and say to the service what it understands."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest
from supervisors import UNIT, manifest, problems, systemd_analyze, unit

from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.spark.pipelines.serving.service import ServiceEnd
from orbitmq.spark.pipelines.serving.service_file import read_service_file


def test_the_unit_knows_the_exit_codes() -> None:
    found = unit()
    assert found["RestartPreventExitStatus"].split() == [str(int(ExitCode.USAGE)), str(int(ExitCode.IN_USE))]
    assert found["SuccessExitStatus"] == str(int(ExitCode.GIVEN_UP)) == str(ServiceEnd.GIVEN_UP.exit_code)
    assert ServiceEnd.SPARK_GONE.exit_code == ExitCode.FAILED


def said_by_systemd(folder: Path, text: str) -> str:
    """What `systemd-analyze verify` has against the unit, with a program that is there."""
    file = folder / UNIT.name
    file.write_text(text.replace("/opt/orbitmq/bin/orbitmq", sys.executable), encoding="utf-8")
    done = systemd_analyze("verify", file)
    return done.stdout + done.stderr


def test_systemd_has_nothing_against_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    assert said_by_systemd(tmp_path, text) == ""
    assert "Unknown key 'KillMod'" in said_by_systemd(tmp_path, text.replace("KillMode", "KillMod"))


def test_the_manifest_is_of_the_kinds_that_kubernetes_knows() -> None:
    found = manifest()
    assert list(found) == ["ConfigMap", "PersistentVolumeClaim", "Deployment"]
    for document in found.values():
        assert problems(document) == []
    found["Deployment"]["spec"]["template"]["spec"]["terminationGraceSeconds"] = 90
    assert problems(found["Deployment"]) == [".spec.template.spec.terminationGraceSeconds"]
    found["Deployment"]["spec"]["replicas"] = "one"
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int.*replicas"):
        problems(found["Deployment"])


def test_the_unit_asks_for_nothing_that_it_does_not_need() -> None:
    found = unit()
    assert found["CapabilityBoundingSet"] == ""
    assert found["ProtectSystem"] == "strict"
    for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID"):
        assert found[name] == "yes", name
    assert "MemoryDenyWriteExecute" not in found, "Java makes code while it runs"


def test_commands_of_the_unit_are_those_of_the_program() -> None:
    from typer.main import get_command

    from orbitmq.cli.pipelines.pipelines import app

    known = {word for parameter in get_command(app).commands["serve"].params for word in parameter.opts}  # type: ignore[attr-defined]
    assert set(re.findall(r" (--[a-z-]+)", unit()["ExecStart"])) <= known


def test_a_wrong_file_is_found_by_the_service_itself() -> None:
    """Of what ExecStartPre runs, systemd does not compare the exit code with RestartPreventExitStatus: it would be started for ever."""
    assert "ExecStartPre" not in unit()


def test_the_file_of_the_manifest_is_understood_and_fits_it(tmp_path: Path) -> None:
    found = manifest()
    file = tmp_path / "pipeline.toml"
    file.write_text(found["ConfigMap"]["data"]["pipeline.toml"], encoding="utf-8")
    said = read_service_file(file)
    pod = found["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["ports"] == [{"name": "health", "containerPort": said.service.address[1]}]
    assert said.service.address[0] == "0.0.0.0", "probes come from outside of the pod"
    assert pod["terminationGracePeriodSeconds"] * 1000 > said.service.stop_within_ms
    assert said.service.state in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert found["Deployment"]["spec"]["replicas"] == 1
    probes = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {"startupProbe": "/readyz", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}


def test_the_manifest_starts_what_spark_submit_is_given() -> None:
    (container,) = manifest()["Deployment"]["spec"]["template"]["spec"]["containers"]
    (line,) = container["args"]
    assert line.endswith(
        '"$(python3 -m orbitmq pipeline submit-script)" serve --log-format json /etc/orbitmq/pipeline.toml'
    )


def test_the_unit_waits_longer_than_a_stop_may_take() -> None:
    from orbitmq.limits.spark import SERVICE_STOP_MS

    assert int(unit()["TimeoutStopSec"]) * 1000 > SERVICE_STOP_MS
