"""Damage that a start meets is fetched from the other broker of a pair; where that is away the start is refused, and says what to run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import ServedProcess, clean_environment, until
from test_pair import Pair, bodies, send
from test_pair_damage import COUNT, body, damage, facts, log_files, pair_with_messages

from orbitmq.protocol.remoting.commands import ResponseCode


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = pair_with_messages(tmp_path)
    for server in (made.master, made.slave):
        until((server.data / "orbitmq.id").exists, what="the id of the log in its file")
    yield made
    made.end()


def have_all_of_the_log_read(server: ServedProcess) -> None:
    """By its next start."""
    shutil.rmtree(server.data / "consumequeue", ignore_errors=True)


def whole_log(server: ServedProcess) -> bytes:
    return b"".join(log_files(server).values())


def run_mend(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orbitmq.cli.main", "store", "mend", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=clean_environment(), timeout=120, check=False)


def test_a_slave_fetches_what_its_start_meets_and_what_lies_before_that(pair: Pair) -> None:
    pair.slave.kill()
    damage(pair.slave, 3, 4, 30, COUNT - 2, size=3_000)
    have_all_of_the_log_read(pair.slave)
    pair.start_slave()
    assert "other copies are asked for it" in pair.slave.log()
    assert log_files(pair.slave) == log_files(pair.master)
    until(lambda: bodies(pair.slave)[-COUNT:] == [body(number) for number in range(COUNT)], 30, what="all messages")


def test_a_master_fetches_what_its_start_meets_from_its_slave(pair: Pair) -> None:
    pair.master.kill()
    damage(pair.master, 7, COUNT - 2)
    have_all_of_the_log_read(pair.master)
    master = pair.start_master()
    assert bodies(master)[-COUNT:] == [body(number) for number in range(COUNT)]
    copied = int(facts(pair.slave)["LogEnd"])
    assert whole_log(master)[:copied] == whole_log(pair.slave)[:copied]


def test_a_record_that_a_start_reads_before_what_it_scans_is_fetched_too(pair: Pair) -> None:
    """After an orderly stop nothing is scanned: what the tables say is read from where they were recorded."""
    pair.master.stop()
    path = min((pair.master.data / "commitlog").iterdir())
    at = path.read_bytes().find(b"orders")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"0")
    master = pair.start_master()
    assert "other copies are asked for it" in master.log()
    assert path.read_bytes()[at : at + 6] == b"orders"
    assert bodies(master)[-COUNT:] == [body(number) for number in range(COUNT)]
    pair.slave.kill()
    master.stop()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"0")
    alone = pair.start_master()
    assert "the start goes on without what is damaged" in alone.log()
    assert bodies(alone)[-COUNT:] == [body(number) for number in range(COUNT)]


def test_a_start_that_is_killed_while_it_mends_is_begun_again(pair: Pair) -> None:
    pair.slave.stop()
    damage(pair.slave, *range(2, COUNT, 4), size=3_000)
    have_all_of_the_log_read(pair.slave)
    settings = {**pair.slave_settings, "namesrvAddr": f"127.0.0.1:{pair.master.name_port}"}
    for pause_s in (0.0, 0.002, 0.02):
        killed = ServedProcess(pair.directory / "slave", command="broker", settings=settings, awaited=False)
        pair.processes.append(killed)
        asked = killed.log().count("other copies are asked")
        until(lambda: killed.log().count("other copies are asked") > asked or "following" in killed.log(), 30)  # noqa: B023
        time.sleep(pause_s)
        killed.kill()
    pair.start_slave()
    assert log_files(pair.slave) == log_files(pair.master)


def test_where_the_other_is_away_a_start_is_refused_and_says_what_helps(pair: Pair, tmp_path: Path) -> None:
    pair.slave.stop()
    ports = pair.master.name_port, pair.master.port
    pair.master.stop()
    damage(pair.slave, 3, 30)
    have_all_of_the_log_read(pair.slave)
    before = log_files(pair.slave)
    settings = {**pair.slave_settings, "namesrvAddr": f"127.0.0.1:{ports[0]}"}
    refused = ServedProcess(pair.directory / "slave", command="broker", settings=settings, awaited=False)
    assert refused.exit_code() == 1
    said = refused.log()
    assert "the commit log is damaged at offset" in said
    assert "Traceback" not in said
    assert log_files(pair.slave) == before, "nothing was changed"
    found = re.search(r"orbitmq store mend (\S+) --from (127\.0\.0\.1:\d+)", said)
    assert found is not None, said[-2_000:]
    directory, source = found.groups()
    assert source == f"127.0.0.1:{ports[1]}"

    assert run_mend(directory, "--from", source).returncode == 1, "nobody answers there"
    master = ServedProcess(pair.directory / "master", settings=pair.master_settings, ports=ports)
    pair.processes.append(master)
    pair.master = master
    shown = run_mend(directory, "--from", source, "--dry-run")
    assert (shown.returncode, shown.stdout.count("CRC")) == (1, 2), shown.stdout + shown.stderr
    assert log_files(pair.slave) == before
    mended = run_mend(directory, "--from", source)
    assert (mended.returncode, mended.stdout.count(source)) == (0, 2), mended.stdout + mended.stderr
    assert log_files(pair.slave) == log_files(master)
    again = run_mend(directory, "--from", source)
    assert (again.returncode, "nothing is damaged" in again.stdout + again.stderr) == (0, True)
    pair.start_slave()
    assert run_mend(directory, "--from", source).returncode == 6, "it is in use"
    pair.slave.stop(signal.SIGTERM)


def test_a_file_that_is_cut_short_or_missing_is_fetched_by_a_start_or_by_the_command_that_its_refusal_names(
    pair: Pair,
) -> None:
    with pair.master.client() as client:
        for number in range(COUNT, 4 * COUNT):
            assert send(client, body(number)) == ResponseCode.SUCCESS
    pair.slave.kill()
    files = sorted((pair.slave.data / "commitlog").iterdir())
    os.truncate(files[1], 300_000)
    pair.start_slave()
    assert "came from the copy at" in pair.slave.log()
    assert log_files(pair.slave) == log_files(pair.master)
    until(lambda: facts(pair.master)["CopiesCounted"] == "1", 30, what="a slave that counts")

    pair.slave.stop()
    ports = pair.master.name_port, pair.master.port
    files[1].unlink()
    pair.master.stop()
    settings = {**pair.slave_settings, "namesrvAddr": f"127.0.0.1:{ports[0]}"}
    refused = ServedProcess(pair.directory / "slave", command="broker", settings=settings, awaited=False)
    assert refused.exit_code() == 1
    found = re.search(r"orbitmq store mend (\S+) --from (127\.0\.0\.1:\d+)", refused.log())
    assert found is not None, refused.log()[-2_000:]
    pair.processes.append(
        master := ServedProcess(pair.directory / "master", settings=pair.master_settings, ports=ports)
    )
    pair.master = master
    shown = run_mend(*found.groups()[:1], "--from", found[2], "--dry-run")
    assert (shown.returncode, "its file is missing" in shown.stdout) == (1, True), shown.stdout + shown.stderr
    assert not files[1].exists()
    mended = run_mend(found[1], "--from", found[2])
    assert (mended.returncode, mended.stdout.count(found[2])) == (0, 1), mended.stdout + mended.stderr
    assert log_files(pair.slave) == log_files(master)
    pair.start_slave()
