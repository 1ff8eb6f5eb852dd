"""The recipe of the image and the manifest for Kubernetes: they are well formed, and say what is true of the program. What can be had of
the image without a container is run in tests/system/test_installed.py, and the drain of a pod in tests/system/test_supervised.py."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from supervisors import CONTAINERFILE, DEPLOY, documents, instructions, problems
from typer.main import get_command

from orbitmq.cli.servers import brokers, nameservers, serving
from orbitmq.server.configuration.settings import (
    DEFAULT_BROKER_PORT,
    DEFAULT_GRPC_PORT,
    DEFAULT_HTTP_PORT,
    DEFAULT_NAMESERVER_PORT,
    Overrides,
    Role,
    ServerSettings,
    load_settings,
)
from orbitmq.server.monitoring.watching import PATHS

APPS = {"serve": serving.app, "broker": brokers.app, "nameserver": nameservers.app}
PORTS = {DEFAULT_NAMESERVER_PORT, DEFAULT_BROKER_PORT, DEFAULT_GRPC_PORT, DEFAULT_HTTP_PORT}


def started(words: list[str]) -> ServerSettings:
    """The settings of a server that is started by these words. Raises ConfigurationError, click's errors."""
    name, *options = words
    given = get_command(APPS[name]).make_context(name, options).params
    roles = [Role(name)] if name != "serve" else list(Role)
    flags = [*given["settings"], f"logFormat={given['log_format']}"]
    if given.get("namesrv"):
        flags.append(f"namesrvAddr={given['namesrv']}")
    data = Path(given["data"]) if given["data"] else None
    return load_settings(roles=roles, flags=flags, overrides=Overrides(data=data, host=given["host"]))


# --- the image ----------------------------------------------------------------------------------------------------------


def test_the_image_is_built_of_what_is_there_and_runs_without_rights() -> None:
    found = instructions()
    build, image = (rest for word, rest in found if word == "FROM")
    assert build == "docker.io/library/python:3.13-slim-trixie AS build"
    assert image == "gcr.io/distroless/python3-debian13:nonroot", "extensions are for one Python: trixie is Debian 13"
    known = {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in found} <= known
    ignored = (CONTAINERFILE.parent / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for rest in [rest for word, rest in found if word == "COPY" and not rest.startswith("--from")]:
        for source in rest.split()[:-1]:
            assert (DEPLOY.parent / source).exists(), source
            assert f"!{source}" in ignored, source
    (user,) = (rest for word, rest in found if word == "USER")
    assert user == "65532:65532"
    assert any(
        f"--chown={user}" in rest and rest.endswith("/var/lib/orbitmq") for word, rest in found if word == "COPY"
    )


def test_what_the_image_starts_and_asks_is_understood() -> None:
    said = {word: rest for word, rest in instructions() if word in ("CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK")}
    assert json.loads(said["ENTRYPOINT"])[1:] == ["-m", "orbitmq"]
    settings = started(json.loads(said["CMD"]))
    assert (settings.host, settings.watch.http_host) == ("0.0.0.0", "0.0.0.0")
    assert {int(port) for port in said["EXPOSE"].split()} == PORTS | {DEFAULT_BROKER_PORT - 2, DEFAULT_BROKER_PORT + 1}
    *_, program = json.loads(said["HEALTHCHECK"].partition("CMD ")[2])
    strings = {node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)}
    assert {"/readyz", DEFAULT_HTTP_PORT} <= strings
    assert "/readyz" in PATHS
    for line in (rest for word, rest in instructions() if word == "RUN"):
        assert shlex.split(line)


# --- Kubernetes ---------------------------------------------------------------------------------------------------------


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    """Those documents by name."""
    return {
        document["metadata"]["name"]: document for document in documents("orbitmq.yaml") if document["kind"] == kind
    }


SETS = of_kind("StatefulSet")
each = pytest.mark.parametrize("name", list(SETS))


def container_of(name: str) -> dict[str, Any]:
    (container,) = SETS[name]["spec"]["template"]["spec"]["containers"]
    return dict(container)


def test_the_manifest_is_of_the_kinds_that_kubernetes_knows() -> None:
    found = documents("orbitmq.yaml")
    assert {document["kind"] for document in found} == {"Service", "PodDisruptionBudget", "StatefulSet"}
    for document in found:
        assert problems(document) == []
    found[-1]["spec"]["minReadySecond"] = 3
    assert problems(found[-1]) == [".spec.minReadySecond"]
    found[-1]["spec"]["replicas"] = "two"
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int.*replicas"):
        problems(found[-1])


@each
def test_a_pod_starts_what_the_program_understands(name: str) -> None:
    container = container_of(name)
    values = {one["name"]: one.get("value", "10.1.2.3") for one in container.get("env", ())} | {"POD_NAME": "broker-0"}
    settings = started([re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], word) for word in container["args"]])
    assert settings.host == settings.watch.http_host == "0.0.0.0", "probes and clients come from outside of the pod"
    assert str(settings.data) in {mount["mountPath"] for mount in container["volumeMounts"]}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert set(ports.values()) <= PORTS
    assert ports["http"] == settings.watch.http_port
    if Role.BROKER in settings.roles:
        assert (settings.broker.broker_name, settings.broker.broker_ip1) == ("broker-0", "10.1.2.3")
        replicas = SETS["orbitmq-nameserver"]["spec"]["replicas"]
        names = [f"orbitmq-nameserver-{number}.orbitmq-nameserver:9876" for number in range(replicas)]
        assert list(settings.broker.namesrv_addr) == names


@each
def test_probes_ask_what_is_served_and_have_patience(name: str) -> None:
    container = container_of(name)
    ports = {port["name"] for port in container["ports"]}
    probes = {kind: container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    paths = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}
    assert paths == {"startup": "/readyz", "readiness": "/readyz", "liveness": "/healthz"}
    assert set(paths.values()) <= set(PATHS)
    for probe in probes.values():
        assert probe["httpGet"]["port"] in ports
        assert probe["timeoutSeconds"] <= probe["periodSeconds"]

    def lasts_s(kind: str) -> int:
        return int(probes[kind]["periodSeconds"] * probes[kind].get("failureThreshold", 3))

    assert lasts_s("liveness") >= 60, "a turn of the loop may be long; who is not alive for a minute is begun again"
    assert lasts_s("startup") >= (1_800 if name == "orbitmq-broker" else 60)
    assert lasts_s("readiness") < lasts_s("liveness")


@each
def test_a_pod_has_no_rights_and_writes_to_volumes_alone(name: str) -> None:
    pod, container = SETS[name]["spec"]["template"]["spec"], container_of(name)
    assert pod["securityContext"]["runAsNonRoot"]
    user = dict(instructions())["USER"]
    assert user == f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    volumes = {volume["name"] for volume in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in SETS[name]["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert {"cpu", "memory"} == set(container["resources"]["requests"])
    assert set(container["resources"]["limits"]) == {"memory"}


@each
def test_services_and_budgets_are_those_of_the_pods(name: str) -> None:
    spec = SETS[name]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    services, budgets = of_kind("Service"), of_kind("PodDisruptionBudget")
    assert services[spec["serviceName"]]["spec"]["clusterIP"] == "None"
    ours = [one["spec"] for one in services.values() if one["spec"]["selector"] == labels]
    named = {port["name"]: port["containerPort"] for port in container_of(name)["ports"]}
    for port in [port for service in ours for port in service["ports"]]:
        assert port["port"] == named[port["targetPort"]]
    assert budgets[name]["spec"]["selector"]["matchLabels"] == labels
    assert budgets[name]["spec"]["maxUnavailable"] < spec["replicas"]


def test_a_broker_has_the_time_to_be_drained_and_to_stop() -> None:
    from orbitmq.client import ClientOptions

    *program, source = container_of("orbitmq-broker")["lifecycle"]["preStop"]["exec"]["command"]
    assert program == ["/usr/bin/python3", "-c"]
    (pause_s,) = re.findall(r"time\.sleep\((\d+)\)", source)
    (limit_s,) = re.findall(r"timeout=(\d+)", source)
    assert int(pause_s) * 1_000 >= ClientOptions().route_refresh_ms, "until all clients have asked for routes"
    grace_s = SETS["orbitmq-broker"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s >= int(pause_s) + int(limit_s) + 120
    words = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    assert "wipe-write" in words
    assert "wipe-write" in get_command(brokers.app).commands  # type: ignore[attr-defined]
