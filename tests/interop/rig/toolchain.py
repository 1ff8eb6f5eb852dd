"""Foreign software the rig needs: JDK and Maven, Node.js and npm, Go, a C compiler, the wheel of the C++ client.

Rules of this file
1. Machine prerequisites (JDK, Maven, Node.js, Go, gcc) are looked for, never installed. A missing one raises `Missing` with the remedy.
2. Everything that is fetched or built lands in one cache folder (`.cache/interop` of the repository, or
   `INTEROP_CACHE`), once per content of its sources: a stamp holds their digest.
3. Where packages come from is the business of Maven's, npm's, pip's and Go's own configuration; no address stands here.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

HERE: Final = Path(__file__).resolve().parent
INTEROP: Final = HERE.parent
REPOSITORY: Final = INTEROP.parent.parent

BROKER_VERSION: Final = "5.3.3"
"""The Java broker that serves as reference and as judge of store directories."""
OLD_CLIENT_VERSION: Final = "4.9.8"
OLD_BROKER_VERSION: Final = "4.9.7"
"""The newest broker of 4.x that Maven has."""
NEW_VERSION: Final = "5.5.0"
"""The newest release that Maven has with everything it needs."""
GRPC_CLIENT_VERSION: Final = "5.2.0"
"""The newest gRPC client; its releases are numbered on their own."""
PROFILES: Final = {
    BROKER_VERSION: "remoting,broker,proxy,tools",
    OLD_CLIENT_VERSION: "remoting,acl,tools",
    OLD_BROKER_VERSION: "remoting,acl,broker,tools",
    NEW_VERSION: "remoting,broker,proxy,tools,examples",
    GRPC_CLIENT_VERSION: "grpc",
}
"""The client and what comes with it, as profiles of the project."""

BUILD_LIMIT_S: Final = 600
"""A first build fetches about 120 MB; beyond ten minutes something hangs."""


class Missing(Exception):
    """A prerequisite is not there; the text names it and the remedy. Tests skip with it, the benchmark stops with it."""


class JavaBuild(NamedTuple):
    """One client version with the drivers compiled against it."""

    version: str
    java: Path
    classpath: str


class GoJudges(NamedTuple):
    """h2spec, which tries the rules of HTTP/2, and the test cases of grpc-go."""

    h2spec: Path
    grpc: Path


def cache_folder() -> Path:
    """The folder of fetched and built things, created when absent."""
    folder = Path(os.environ.get("INTEROP_CACHE", REPOSITORY / ".cache" / "interop"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def program(name: str, remedy: str) -> Path:
    """Path of an installed program. Raises `Missing`."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed: {remedy}")
    return Path(found)


def java_program() -> Path:
    """The `java` of JAVA_HOME, else of the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return Path(home) / "bin" / "java"
    return program("java", "install a JDK 11 or newer (Debian: apt install openjdk-17-jdk-headless)")


def java_build(version: str) -> JavaBuild:
    """Drivers and libraries for a client version; with `BROKER_VERSION` and `NEW_VERSION` also name server, broker and proxy, with
    the latter RocketMQ's example programs. Cost: 20-60 s once."""
    java = java_program()
    maven = program("mvn", "install Maven 3.8 or newer (Debian: apt install maven)")
    program("javac", "a JDK is needed, not only a JRE (Debian: apt install openjdk-17-jdk-headless)")
    project = INTEROP / "java"
    sources = [project / "pom.xml", *sorted((project / "src").rglob("*.java"))]

    def build(target: Path) -> None:
        run(
            [
                maven,
                "-q",
                "-B",
                "-f",
                project / "pom.xml",
                f"-P{PROFILES[version]}",
                f"-Drocketmq.version={version}",
                f"-DbuildDirectory={target}",
                "compile",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={target / 'lib'}",
            ]
        )

    folder = built(f"rocketmq-{version}", sources, build)
    return JavaBuild(version, java, f"{folder / 'classes'}{os.pathsep}{folder / 'lib'}/*")


def node_modules() -> tuple[Path, Path]:
    """(node, folder of node_modules) with `ali-ons` installed from the lock file. Cost: some seconds once."""
    node = program("node", "install Node.js 18 or newer (Debian: apt install nodejs npm)")
    npm = program("npm", "install npm (Debian: apt install npm)")
    project = INTEROP / "node"
    locked = [project / "package.json", project / "package-lock.json"]

    def build(target: Path) -> None:
        for file in locked:
            shutil.copy(file, target)
        run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=target)

    return node, built("node", locked, build) / "node_modules"


def cpp_python() -> Path:
    """Interpreter of an environment of its own that holds the wheel of the C++ client. Cost: some seconds once."""
    pin = INTEROP / "cpp" / "requirements.txt"

    def build(target: Path) -> None:
        venv.create(target, with_pip=True, clear=True)
        run([target / "bin" / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "-r", pin])
        run([target / "bin" / "python", "-c", "import rocketmq.client"])

    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        raise Missing("the wheel of the C++ client exists for Linux on x86_64 only: run these tests there")
    return built("cpp", [pin], build) / "bin" / "python"


def go_judges() -> GoJudges:
    """Compiled from the versions that `go.mod` pins, without optimization, which they do not need. Cost: a minute of CPU once."""
    go = program("go", "install Go 1.24 or newer (go.dev/doc/install)")
    project = INTEROP / "go"
    sources = [project / name for name in ("go.mod", "go.sum", "main.go")]

    def build(target: Path) -> None:
        quick = ["-ldflags=-s -w", "-gcflags=all=-N -l"]
        run([go, "build", *quick, "-o", target, ".", "github.com/summerwind/h2spec/cmd/h2spec"], cwd=project)

    folder = built("go", sources, build)
    return GoJudges(folder / "h2spec", folder / "interop")


def load_generator() -> Path:
    """The compiled load generator of benchmarks/."""
    compiler = program("gcc", "install a C compiler (Debian: apt install gcc libc6-dev)")
    source = REPOSITORY / "benchmarks" / "loadgen" / "loadgen.c"

    def build(target: Path) -> None:
        run([compiler, "-O2", "-o", target / "loadgen", source])

    return built("loadgen", [source], build) / "loadgen"


def built(name: str, sources: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """Folder `name` of the cache, filled by `build` when its stamp does not fit the sources. Safe between processes."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    folder = cache_folder() / name
    with open(cache_folder() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "built-from"
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        build(folder)
        stamp.write_text(digest.hexdigest())
    return folder


def run(command: Sequence[str | Path], cwd: Path | None = None) -> None:
    """Run a build step. Raises `Missing` with the end of its output when it fails or takes too long."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Missing(
            f"{Path(words[0]).name} took more than {BUILD_LIMIT_S} s: is the package registry reachable?"
        ) from error
    if done.returncode:
        tail = (done.stdout + done.stderr)[-1500:]
        raise Missing(f"{Path(words[0]).name} failed ({done.returncode}); is the package registry reachable?\n{tail}")
