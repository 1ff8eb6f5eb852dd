"""Generated documents are fresh and imports point one way."""

from __future__ import annotations

import shutil
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
        "replication",
        "timing",
        *(f"timing/{room}" for room in ("far", "index", "levels", "recurrence", "rocketmq", "timers")),
        "store",
        "access",
        "protocol",
        "leaf",
        "client",
        "testing",
        "telemetry",
        "columns",
        "spark",
    ):
        (package / name).mkdir(parents=True, exist_ok=True)
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


GENERATORS = [
    "configuration_docs.py",
    "cli_docs.py",
    "api_docs.py",
    "grpc_types.py",
    "reference_docs.py",
    "spark_docs.py",
    "pipeline_docs.py",
]


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_documents_are_fresh(name: str) -> None:
    script = ROOT / "scripts" / name
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("api_docs.py", "api.md"),
        ("reference_docs.py", "limits.md"),
        ("reference_docs.py", "errors.md"),
        ("reference_docs.py", "requests.md"),
    ],
)
def test_a_stale_reference_is_noticed(name: str, page: str, tmp_path: Path) -> None:
    """The generators work on the checkout they stand in: a copy of it, with one word changed."""
    for part in ("scripts", "docs/reference"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / "src").symlink_to(ROOT / "src")
    target = tmp_path / "docs" / "reference" / page
    command = [sys.executable, tmp_path / "scripts" / name, "--check"]
    assert subprocess.run(command, check=False).returncode == 0
    target.write_text(target.read_text(encoding="utf-8").replace("the", "teh", 1), encoding="utf-8")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{page} " in done.stderr
    assert "run: python" in done.stderr


def test_the_list_of_metrics_is_fresh() -> None:
    script = ROOT / "scripts" / "metrics_docs.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
