"""The unit of systemd and the manifest of Kubernetes, as their supervisors read them."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
UNIT = DEPLOY / "systemd" / "orbitmq-pipeline.service"


def unit() -> dict[str, str]:
    parser = configparser.ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return dict(parser["Service"])


def manifest() -> dict[str, Any]:
    text = (DEPLOY / "kubernetes" / "orbitmq-pipeline.yaml").read_text(encoding="utf-8")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}
