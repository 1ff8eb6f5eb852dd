"""Foreign software the rig needs: JDK and Maven, Node.js and npm, Go, Cargo, a C compiler, wheels of other clients.

Rules of this file
1. What the machine must have (JDK, Maven, Node.js, Go, Cargo, gcc) is looked for, never installed. A missing one raises `Missing` with
   the remedy.
2. Everything that is fetched or built lands in one cache folder (`.cache/interop` of the repository, or
   `INTEROP_CACHE`), once per content of its sources: a stamp holds their digest.
3. Where packages come from is the business of Maven's, npm's, pip's, Go's and Cargo's own configuration; no address stands here.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Mapping, Sequence
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
GRPC_CLIENT_VERSIONS: Final = ("5.0.3", "5.0.7", GRPC_CLIENT_VERSION)
"""The first of them knows connections over TLS only."""
PROFILES: Final = {
    BROKER_VERSION: "remoting,broker,proxy,tools",
    OLD_CLIENT_VERSION: "remoting,acl,tools",
    OLD_BROKER_VERSION: "remoting,acl,broker,tools",
    NEW_VERSION: "remoting,broker,proxy,tools,examples",
    **dict.fromkeys(GRPC_CLIENT_VERSIONS, "grpc"),
}
"""The client and what comes with it, as profiles of the project."""

MAVEN_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A build ends before better code has paid: half the CPU."""

GO_QUICK: Final = ("-ldflags=-s -w", "-gcflags=all=-N -l")
"""Nothing here needs optimization, which takes most of a build."""

BUILD_LIMIT_S: Final = 600
"""A first build fetches about 120 MB; beyond ten minutes something hangs."""


class Missing(Exception):
    """A prerequisite is not there; the text names it and the remedy. Tests skip with it, the benchmark stops with it."""


class JavaBuild(NamedTuple):
    """One client version with the drivers compiled against it."""

    version: str
    java: Path
    classpath: str
    libraries: str
    """The class path without the drivers: of servers."""


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
            ],
            env={"MAVEN_OPTS": f"{MAVEN_QUICK} {os.environ.get('MAVEN_OPTS', '')}"},
        )

    folder = built(f"rocketmq-{version}", sources, build)
    libraries = f"{folder / 'lib'}/*"
    return JavaBuild(version, java, f"{folder / 'classes'}{os.pathsep}{libraries}", libraries)


def delta_judge() -> JavaBuild:
    """Spark with Delta's own package, and the program that reads tables by it. Cost: half a minute and 230 MB once."""
    java = java_program()
    maven = program("mvn", "install Maven 3.8 or newer (Debian: apt install maven)")
    compiler = program("javac", "a JDK is needed, not only a JRE (Debian: apt install openjdk-17-jdk-headless)")
    project, shared = INTEROP / "delta", INTEROP / "java" / "src" / "main" / "java" / "interop"
    sources = [project / "DeltaReader.java", shared / "Command.java", shared / "JsonLine.java"]

    def build(target: Path) -> None:
        jars = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target / 'lib'}"]
        run([maven, "-q", "-B", "-f", project / "pom.xml", *jars], env={"MAVEN_OPTS": MAVEN_QUICK})
        run([compiler, "-d", target / "classes", "-cp", f"{target / 'lib'}/*", *sources])

    folder = built("delta", [project / "pom.xml", *sources], build)
    libraries = f"{folder / 'lib'}/*"
    return JavaBuild("delta", java, f"{folder / 'classes'}{os.pathsep}{libraries}", libraries)


def node_modules(project: str = "node") -> tuple[Path, Path]:
    """(node, folder of node_modules) with what the lock file of a project of this folder names. Cost: some seconds once."""
    node = program("node", "install Node.js 18 or newer (Debian: apt install nodejs npm)")
    npm = program("npm", "install npm (Debian: apt install npm)")
    locked = [INTEROP / project / name for name in ("package.json", "package-lock.json")]

    def build(target: Path) -> None:
        for file in locked:
            shutil.copy(file, target)
        run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=target)

    return node, built(project.replace("/", "-"), locked, build) / "node_modules"


def cpp_python() -> Path:
    """Interpreter of an environment that holds the wheel of the C++ client. Cost: some seconds once."""
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        raise Missing("the wheel of the C++ client exists for Linux on x86_64 only: run these tests there")
    return _python("cpp", "import rocketmq.client")


def grpc_python() -> Path:
    """Interpreter of an environment that holds the Python client for gRPC. Cost: half a minute once."""
    return _python("grpc_clients/python", "import grpc")


def _python(project: str, check: str) -> Path:
    """Interpreter of an environment of its own, as a folder's `requirements.txt` names it."""
    pin = INTEROP / project / "requirements.txt"

    def build(target: Path) -> None:
        venv.create(target, clear=True)
        pip = [sys.executable, "-m", "pip", "--python", target / "bin" / "python"]
        run([*pip, "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "-r", pin])
        run([target / "bin" / "python", "-c", check])

    return built(project.replace("/", "-"), [pin], build) / "bin" / "python"


def grpc_go_client() -> Path:
    """The driver of the Go client, compiled without optimization. Cost: half a minute of CPU once."""
    project = INTEROP / "grpc_clients" / "go"
    sources = [project / name for name in ("go.mod", "go.sum", "main.go")]

    def build(target: Path) -> None:
        run([go_program(), "build", *GO_QUICK, "-o", target / "driver", "."], cwd=project)

    return built("grpc_clients-go", sources, build) / "driver"


def grpc_rust_client() -> Path:
    """The driver of the Rust client; its makers' example programs are in the folder `examples` beside it. Cost: five minutes once."""
    cargo = program("cargo", "install Rust 1.75 or newer (rustup.rs)")
    project = INTEROP / "grpc_clients" / "rust"
    sources = [project / name for name in ("Cargo.toml", "Cargo.lock", "src/main.rs")]

    def build(target: Path) -> None:
        cargo_build = [cargo, "build", "--quiet", "--locked", "--target-dir", target]
        run(cargo_build, cwd=project)
        told = json.loads(run([cargo, "metadata", "--locked", "--format-version", "1"], cwd=project))
        (client,) = [package for package in told["packages"] if package["name"] == "rocketmq"]
        run([*cargo_build, "--examples", "--manifest-path", client["manifest_path"]], cwd=target)

    return built("grpc_clients-rust", sources, build) / "debug" / "driver"


def go_judges() -> GoJudges:
    """Compiled from the versions that `go.mod` pins, without optimization, which they do not need. Cost: a minute of CPU once."""
    go = go_program()
    project = INTEROP / "go"
    sources = [project / name for name in ("go.mod", "go.sum", "main.go")]

    def build(target: Path) -> None:
        run([go, "build", *GO_QUICK, "-o", target, ".", "github.com/summerwind/h2spec/cmd/h2spec"], cwd=project)

    folder = built("go", sources, build)
    return GoJudges(folder / "h2spec", folder / "interop")


def go_program() -> Path:
    return program("go", "install Go 1.24 or newer (go.dev/doc/install)")


def debian_etcd() -> Path:
    """etcd of Debian's package `etcd-server`."""
    return debian_program("etcd", "etcd-server")


def debian_promtool() -> Path:
    """Prometheus' checker of rules and metrics, of Debian's package `prometheus`."""
    return debian_program("promtool", "prometheus")


def debian_logrotate() -> Path:
    """logrotate of Debian's package, with a library that small machines lack."""
    return debian_program("logrotate", "logrotate", "libpopt0")


def debian_systemd_analyze() -> Path:
    """What reads units of systemd, with libraries that machines without systemd lack."""
    return debian_program(
        "systemd-analyze", "systemd", "libsystemd-shared", "libseccomp2", "libapparmor1", "libkmod2", "libip4tc2"
    )


def debian_program(name: str, package: str, *libraries: str) -> Path:
    """A program of a package of Debian, unpacked and not installed: that would start a service. `libraries` are packages whose libraries
    it finds beside it. Cost: some seconds once."""
    remedy = f"install it (Debian: apt install {package}), and `{name}` of the PATH is taken"
    get, unpack = program("apt-get", remedy), program("dpkg-deb", remedy)

    def build(target: Path) -> None:
        download = [get, "download", package, *libraries]
        try:
            run(download, cwd=target)
        except Missing:
            if os.geteuid():
                raise
            run([get, "update"])  # the lists of packages are missing, or too old
            run(download, cwd=target)
        for archive in target.glob("*.deb"):
            run([unpack, "-x", archive, target])
            archive.unlink()
        (found,) = target.glob(f"usr/*bin/{name}")
        if libraries:
            folders = sorted({f"$here/{library.parent.relative_to(target)}" for library in target.rglob("lib*.so*")})
            begin = f"""here=$(dirname "$0")\nLD_LIBRARY_PATH="{":".join(folders)}" """  # the cache may be moved
            (target / name).write_text(f'#!/bin/sh\n{begin}exec "$here/{found.relative_to(target)}" "$@"\n')
            (target / name).chmod(0o755)
            found = target / name
        run([found, "--version"])

    folder = built(name, [], build)
    return folder / name if libraries else folder / "usr" / "bin" / name


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


def run(command: Sequence[str | Path], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a build step with variables besides those that are there; what it printed. Raises `Missing` with the end of its output when it
    fails or takes too long."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Missing(
            f"{Path(words[0]).name} took more than {BUILD_LIMIT_S} s: is the package registry reachable?"
        ) from error
    if done.returncode:
        tail = (done.stdout + done.stderr)[-1500:]
        raise Missing(f"{Path(words[0]).name} failed ({done.returncode}); is the package registry reachable?\n{tail}")
    return done.stdout
