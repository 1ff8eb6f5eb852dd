"""What a session is started with, and what is refused before anything starts. On real Spark: tests/spark/test_spark_session.py."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError, SparkUnavailableError
from orbitmq.spark import session, spark_session
from orbitmq.spark.python_daemon import without_zip
from orbitmq.spark.spark_session import (
    Start,
    TasksOnly,
    checkpoint_files,
    on_command_line,
    plan_start,
    starting_environment,
    tasks_only,
)
from orbitmq.spark.workers import PYTHON_VARIABLE, WorkerPython

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.fixture(autouse=True)
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Spark's jars, empty."""
    monkeypatch.setattr(spark_session, "_jars", lambda: tmp_path)
    return tmp_path


def plan(
    master: str | None = None, remote: str | None = None, *, environment: dict[str, str] | None = None, **texts: str
) -> Start:
    return plan_start(master, remote, texts, environment or {})


def test_nothing_said_is_this_machine_with_all_its_cores() -> None:
    start = plan()
    assert start.starts_java
    assert start.is_here
    assert start.settings["spark.master"] == "local[*]"
    assert start.settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert start.settings["spark.driver.host"] == "127.0.0.1"
    assert start.settings["spark.ui.enabled"] == "false"
    assert start.settings["spark.python.unix.domain.socket.enabled"] == "true"
    assert start.settings["spark.sql.execution.arrow.maxBytesPerBatch"] == "2m"
    assert start.settings["spark.sql.shuffle.partitions"] == str(len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[3,4]", 3), ("local-cluster[2,1,1024]", 2)],
)
def test_a_local_master_shuffles_into_as_many_partitions_as_it_has_cores(master: str, cores: int) -> None:
    start = plan(master)
    assert start.is_here
    assert start.settings["spark.sql.shuffle.partitions"] == str(cores)


def test_what_the_caller_says_wins() -> None:
    start = plan("local[2]", **{"spark.ui.enabled": "true", "spark.sql.shuffle.partitions": "7", "spark.app.id": "x"})
    assert start.settings["spark.ui.enabled"] == "true"
    assert start.settings["spark.sql.shuffle.partitions"] == "7"
    assert start.settings["spark.app.id"] == "x"


def test_a_master_among_the_settings_is_a_master() -> None:
    start = plan(**{"spark.master": "spark://host:7077"})
    assert start.settings["spark.master"] == "spark://host:7077"
    assert not start.is_here


def test_a_cluster_keeps_its_addresses_and_its_python() -> None:
    start = plan("spark://host:7077")
    assert start.starts_java
    assert not start.is_here
    assert "spark.driver.host" not in start.settings
    assert "spark.sql.shuffle.partitions" not in start.settings


def test_spark_submit_has_said_where_and_has_a_java() -> None:
    start = plan(environment={"PYSPARK_GATEWAY_PORT": "4711"})
    assert not start.starts_java
    assert not start.is_here
    assert "spark.master" not in start.settings


@pytest.mark.parametrize("asked", [{"remote": "sc://host:15002"}, {"environment": {"SPARK_REMOTE": "sc://host:15002"}}])
def test_a_remote_session_gets_the_caller_s_settings_only(asked: dict[str, str]) -> None:
    start = plan_start(None, asked.get("remote"), {"spark.sql.ansi.enabled": "false"}, asked.get("environment", {}))  # type: ignore[arg-type]
    assert start.settings == {"spark.remote": "sc://host:15002", "spark.sql.ansi.enabled": "false"}
    assert not start.starts_java
    assert not start.is_here


def test_a_master_that_was_named_is_stronger_than_the_environment() -> None:
    start = plan("local[2]", environment={"SPARK_REMOTE": "sc://host"})
    assert start.settings["spark.master"] == "local[2]"
    assert "spark.remote" not in start.settings


def test_a_connect_server_in_this_process_is_a_session_of_this_machine() -> None:
    start = plan(remote="local[2]")
    assert start.starts_java
    assert start.is_here
    assert start.settings["spark.remote"] == "local[2]"
    assert start.settings["spark.connect.grpc.binding.address"] == "127.0.0.1"


@pytest.mark.parametrize(
    "name",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.ssl.keyStorePassword",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.HF_TOKEN",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
    ],
)
def test_a_secret_is_no_word_of_a_command_line(name: str) -> None:
    settings = plan("local[2]", **{name: "hidden", "spark.driver.memory": "2g"}).settings
    assert settings[name] == "hidden"
    assert on_command_line(settings) == {one: value for one, value in settings.items() if one != name}


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["execution/streaming", "execution/streaming/checkpointing"])
def test_the_class_for_checkpoints_is_found_where_this_version_has_it(jars: Path, package: str) -> None:
    with zipfile.ZipFile(jars / "spark-sql_2.13-4.9.0.jar", "w") as archive:
        archive.writestr("org/apache/spark/sql/execution/streaming/CheckpointFileManager.class", b"")
        archive.writestr(f"org/apache/spark/sql/{package}/FileSystemBasedCheckpointFileManager.class", b"")
    name = f"org/apache/spark/sql/{package}/FileSystemBasedCheckpointFileManager".replace("/", ".")
    assert checkpoint_files(jars) == name
    assert plan("local[2]").settings[MANAGER] == name
    assert MANAGER not in plan("spark://host:7077").settings


def test_a_version_without_that_class_keeps_its_own_choice(jars: Path) -> None:
    with zipfile.ZipFile(jars / "spark-sql_2.13-4.9.0.jar", "w") as archive:
        archive.writestr("org/apache/spark/sql/Other.class", b"")
    assert checkpoint_files(jars) is None
    assert MANAGER not in plan("local[2]").settings


# --- the environment while Spark starts -------------------------------------------------------------------------------


@pytest.fixture
def java_home(monkeypatch: pytest.MonkeyPatch) -> Path:
    home = Path("the launcher")
    monkeypatch.setattr(spark_session, "find_java", lambda environment: home)
    return home


HERE = Start({}, starts_java=True, is_here=True, python=WorkerPython(sys.executable, False))


def test_only_what_a_later_start_needs_stays_in_the_environment(java_home: Path) -> None:
    environment = {"JAVA_HOME": "the user's"}
    with starting_environment(HERE, environment) as java:
        assert java == java_home
        assert environment == {
            "JAVA_HOME": str(java_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "MIMALLOC_PURGE_DELAY": "1000",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
    assert environment == {
        "JAVA_HOME": "the user's",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@pytest.mark.usefixtures("java_home")
def test_the_environment_is_put_back_when_the_start_fails() -> None:
    environment: dict[str, str] = {}

    def start() -> None:
        with starting_environment(HERE, environment):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start()
    assert environment.keys() == {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}


@pytest.mark.usefixtures("java_home")
def test_what_the_environment_says_already_is_left_alone() -> None:
    said = {"PYSPARK_PYTHON": "python9", "PYSPARK_DRIVER_PYTHON": "python8", "SPARK_LOCAL_IP": "10.0.0.1"}
    said["MIMALLOC_PURGE_DELAY"] = "0"
    environment = dict(said)
    start = HERE._replace(python=plan("local[2]", environment=said).python)
    with starting_environment(start, environment):
        assert environment.items() >= said.items()
    assert environment == said


@pytest.mark.usefixtures("java_home")
def test_workers_of_a_cluster_run_the_python_that_is_planned_and_keep_the_addresses() -> None:
    environment: dict[str, str] = {}
    with starting_environment(Start({}, starts_java=True, is_here=False, python=WorkerPython("p", True)), environment):
        assert environment.keys() == {"JAVA_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"}
        assert environment["PYSPARK_PYTHON"] == "p"


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]", "spark://host:7077"])
def test_workers_run_what_the_caller_says_then_the_environment_then_this_python(master: str) -> None:
    said = plan(master, environment={"PYSPARK_PYTHON": "/e/python"}, **{"spark.pyspark.python": "/c/python"})
    assert said.python == WorkerPython("/c/python", True)
    assert plan(master, environment={"PYSPARK_PYTHON": "/e/python"}).python == WorkerPython("/e/python", True)
    assert plan(master).python == WorkerPython(sys.executable, False)
    assert plan(None, "sc://host").python is None


def test_workers_that_are_this_python_start_by_our_daemon() -> None:
    name = "spark.python.daemon.module"
    assert plan("local[2]").settings[name] == "orbitmq.spark.python_daemon"
    assert name not in plan("local[2]", **{"spark.pyspark.python": "/c/python"}).settings
    assert name not in plan("spark://host:7077").settings
    assert plan("local[2]", **{name: "mine"}).settings[name] == "mine"


def test_the_daemon_leaves_out_a_zip_whose_modules_are_installed() -> None:
    zipped, beside = "/s/pyspark/python/lib/pyspark.zip", "/s/pyspark/python/lib/py4j-0.10.9-src.zip"
    assert without_zip([zipped, beside, "/s"]) == [beside, "/s"]
    assert without_zip([zipped, beside, "/other"]) == [zipped, beside, "/other"]


def test_a_remote_session_changes_nothing() -> None:
    environment: dict[str, str] = {}
    with starting_environment(Start({}, starts_java=False, is_here=False), environment) as java:
        assert java is None
        assert environment == {}


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "environment", "is_alone"),
    [
        ({}, {}, True),
        ({"master": "local[2]"}, {}, True),
        ({"master": "local[2]", "spark.pyspark.python": "/bin/sh"}, {}, False),
        ({"master": "local-cluster[2,1,1024]"}, {}, False),
        ({"master": "spark://host:7077"}, {}, False),
        ({"remote": "sc://host"}, {}, False),
        ({"master": "sc://host"}, {}, False),
        ({"master": "local[2]", "remote": "sc://host"}, {}, False),
        ({}, {"SPARK_REMOTE": "local"}, False),
        ({}, {"PYSPARK_GATEWAY_PORT": "1"}, False),
    ],
)
def test_who_only_gives_out_tasks_gets_a_session_where_it_needs_one(
    said: dict[str, str], environment: dict[str, str], is_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_REMOTE", "PYSPARK_GATEWAY_PORT", PYTHON_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    asked: list[dict[str, object]] = []
    monkeypatch.setattr(spark_session, "session", lambda master, **more: asked.append({"master": master, **more}))
    monkeypatch.setattr(spark_session, "_with_java", lambda start, make: "a context")
    found = tasks_only(app_name="archive", **said)
    if is_alone:
        assert isinstance(found, TasksOnly)
        assert not asked
    else:
        assert asked == [{"master": None, "remote": None, "app_name": "archive", **said}]


def test_a_name_that_is_no_setting_of_spark_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'memory' is no setting of Spark.*session\(\*\*\{"):
        session(memory="4g")


def test_a_value_that_is_no_text_number_or_truth_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.jars is a list"):
        session(**{"spark.jars": ["a.jar"]})  # type: ignore[arg-type]


def test_a_master_and_a_remote_address_exclude_each_other() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        session("local[2]", remote="sc://host")


def test_a_missing_pyspark_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkUnavailableError, match=r"PySpark cannot be imported.*pip install 'orbitmq\[spark\]'"):
        session()


@pytest.mark.parametrize("version", ["4.1.2", "3.5.7"])
def test_an_old_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(SparkUnavailableError, match=f"PySpark {version} is too old"):
        session()


def test_the_package_offers_the_session_and_nothing_else() -> None:
    import orbitmq.spark

    with pytest.raises(AttributeError, match="no attribute 'sessions'"):
        orbitmq.spark.sessions  # noqa: B018  # type: ignore[attr-defined]
