"""Units of systemd, manifests of Kubernetes and the recipe of an image, read as those who take them do; what systemd and logrotate say."""

from __future__ import annotations

import configparser
import importlib
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.interop.rig.toolchain import Missing, debian_logrotate, debian_systemd_analyze

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
UNIT = DEPLOY / "systemd" / "orbitmq-pipeline.service"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"


def unit(file: Path = UNIT, section: str = "Service") -> dict[str, str]:
    """The last value of each key, as systemd takes it for most."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(file.read_text(encoding="utf-8"))
    return dict(parser[section])


def documents(name: str = "orbitmq-pipeline.yaml") -> list[dict[str, Any]]:
    """Those of a file, in order."""
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text(encoding="utf-8")))


def manifest() -> dict[str, Any]:
    """That of the pipelines, by kind."""
    return {document["kind"]: document for document in documents()}


def instructions() -> list[tuple[str, str]]:
    """Of the Containerfile: (word, the rest on one line)."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text(encoding="utf-8"), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def problems(document: dict[str, Any]) -> list[str]:
    """Fields that are none of Kubernetes', which keeps silent about them or refuses them. Raises msgspec.ValidationError for a value of
    another type; skips where Kubernetes' schema, the package lightkube, is not installed."""
    pytest.importorskip("lightkube.models", reason="Kubernetes' schema, the package lightkube, is not installed")
    group, _, version = document["apiVersion"].rpartition("/")
    models = importlib.import_module(f"lightkube.models.{group or 'core'}_{version}")
    return _unknown(document, msgspec.to_builtins(msgspec.convert(document, getattr(models, document["kind"]))))


def _unknown(given: Any, understood: Any, place: str = "") -> list[str]:
    if isinstance(given, dict):
        found = [f"{place}.{name}" for name in given if name not in understood]
        return found + [
            one
            for name in given
            if name in understood
            for one in _unknown(given[name], understood[name], f"{place}.{name}")
        ]
    if isinstance(given, list):
        return [one for pair in zip(given, understood, strict=True) for one in _unknown(*pair, place)]
    return []


def systemd_analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    return _run("systemd-analyze", debian_systemd_analyze, arguments)


def logrotate(*arguments: object) -> subprocess.CompletedProcess[str]:
    return _run("logrotate", debian_logrotate, arguments)


def _run(name: str, unpacked: Callable[[], Path], arguments: tuple[object, ...]) -> subprocess.CompletedProcess[str]:
    """Of the PATH, or Debian's; skips where there is none, and says why."""
    try:
        program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin") or unpacked()
    except Missing as missing:
        pytest.skip(str(missing))
    words = [str(program), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
