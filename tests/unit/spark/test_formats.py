"""The packages in which Spark finds our formats: they cannot fail, are quick, and the one that stops Spark is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed; it comes with the extra spark")

from pyspark import cloudpickle

import pyspark_orbitmq
import pyspark_orbitmq_log
from pyspark_orbitmq.__main__ import main
from pyspark_orbitmq.finding import Found, look_into, packages
from pyspark_orbitmq.loading import source_or_reason

Neighbour = Callable[[str], str]


def printed(program: str) -> object:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize(("package", "name"), [(pyspark_orbitmq, "orbitmq"), (pyspark_orbitmq_log, "orbitmq-log")])
def test_each_package_offers_its_format(package: object, name: str) -> None:
    assert package.DefaultSource.name() == name  # type: ignore[attr-defined]


def test_finding_them_imports_nothing_slow() -> None:
    slow = ("numpy", "pandas", "pyarrow", "grpc", "orbitmq.client._async.client", "asyncio")
    program = (
        "import json, sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_orbitmq, pyspark_orbitmq_log; "
        f"print(json.dumps(sorted((set(sys.modules) - before) & set({slow!r}))))"
    )
    assert printed(program) == []


@pytest.mark.parametrize("source", ["import a_module_that_nobody_has", "1 / 0", "Other = 1"])
def test_a_source_that_cannot_be_loaded_says_why_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    (tmp_path / "broken_source.py").write_text(source, encoding="ascii")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_source", raising=False)
    substitute = source_or_reason("orbitmq", "broken_source", "Source", package="pyspark_orbitmq")
    assert substitute.name() == "orbitmq"
    with pytest.raises(
        ImportError, match=r'^format\("orbitmq"\) cannot be used: .*(ModuleNotFound|ZeroDivision|Attribute)Error'
    ):
        substitute({})


def test_a_substitute_reaches_the_processes_of_spark_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    substitute = source_or_reason("orbitmq", "a_module_that_nobody_has", "Source", package="pyspark_orbitmq")
    monkeypatch.setattr(pyspark_orbitmq, "DefaultSource", substitute)
    assert cloudpickle.loads(cloudpickle.dumps(substitute)) is substitute


# --- python -m pyspark_orbitmq ----------------------------------------------------------------------------------------


@pytest.fixture
def neighbour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Neighbour:
    """Puts a package of somebody else where Spark looks."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    def put(text: str) -> str:
        (tmp_path / "pyspark_neighbour.py").write_text(text, encoding="ascii")
        return "pyspark_neighbour"

    return put


SOUND = """
from pyspark.sql.datasource import DataSource
class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "theirs"
"""


@pytest.mark.parametrize(
    ("text", "format_name", "problem"),
    [
        (SOUND, "theirs", None),
        ("print('hello')", None, None),
        ("DefaultSource = 5", None, None),
        ("import a_module_that_nobody_has", None, "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"),
        ("import sys; sys.exit('wrong arguments')", None, "wrong arguments"),
        ("import sys; sys.exit(3)", None, "exit code 3"),
        ("import sys; print('done'); sys.exit()", None, "its import ends the process; it printed 'done'"),
    ],
)
def test_what_spark_meets_in_a_package(
    neighbour: Neighbour, text: str, format_name: str | None, problem: str | None
) -> None:
    name = neighbour(text)
    assert name in packages()
    assert look_into(name) == Found(name, format_name, problem)


def test_an_import_that_does_not_end_is_given_up(neighbour: Neighbour) -> None:
    name = neighbour("import time; time.sleep(60)")
    assert look_into(name, limit_s=0.05) == Found(name, None, "its import did not end within 0.05 s")


def test_the_command_names_the_package_that_stops_spark(
    neighbour: Neighbour, capsys: pytest.CaptureFixture[str]
) -> None:
    neighbour("import a_module_that_nobody_has")
    assert main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert (
        "pyspark_neighbour: cannot be imported: ModuleNotFoundError: No module named 'a_module_that_nobody_has'"
        in lines
    )
    assert 'pyspark_orbitmq: format("orbitmq")' in lines
    assert lines[-1] == "Spark finds no format at all because of pyspark_neighbour: repair, rename or uninstall it"


def test_the_command_is_content_when_spark_finds_every_format(
    neighbour: Neighbour, capsys: pytest.CaptureFixture[str]
) -> None:
    neighbour(SOUND)
    assert main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert 'pyspark_neighbour: format("theirs")' in lines
