"""Generated documents are fresh and imports point one way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_imports_point_one_way() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("import-linter is not installed; it comes with the dev extra")
    done = subprocess.run([tool, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_import_is_noticed(tmp_path: Path) -> None:
    """The checker catches what it is there for: a copy in which the protocol imports the broker."""
    tool = Path(sys.executable).with_name("lint-imports")
    if not tool.exists():
        pytest.skip("import-linter is not installed; it comes with the dev extra")
    package = tmp_path / "orbitmq"
    for name in (
        "cli",
        "server",
        "broker",
        "nameserver",
        "timing",
        "store",
        "protocol",
        "leaf",
        "client",
        "testing",
        "telemetry",
    ):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").write_text("", encoding="ascii")
    for name in ("__init__", "clock", "limits", "errors", "deadlines", "histogram"):
        (package / f"{name}.py").write_text("", encoding="ascii")
    (package / "protocol" / "planted.py").write_text("import orbitmq.broker\n", encoding="ascii")
    config = ROOT / "pyproject.toml"
    done = subprocess.run(
        [tool, "--no-logo", "--no-cache", "--config", str(config)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "orbitmq.protocol.planted -> orbitmq.broker" in done.stdout


@pytest.mark.parametrize("name", ["configuration_docs.py", "cli_docs.py"])
def test_generated_documents_are_fresh(name: str) -> None:
    script = ROOT / "scripts" / name
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_list_of_metrics_is_fresh() -> None:
    script = ROOT / "scripts" / "metrics_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
