"""Edge: more message queues than descriptors."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.edges.full_disk import small_file_system
from tests.edges.run import EdgeRun

TOPICS: Final = 4
QUEUES: Final = 1_000
DESCRIPTORS: Final = 3_000


def descriptors(run: EdgeRun) -> None:
    """4,000 queues in use under a limit of 3,000 descriptors: all sends are taken, SIGTERM is clean, a restart reads all."""
    with small_file_system(run.directory / "small") as folder:  # in memory: 8,000 new files are not synced one by one
        _use_and_restart(run, folder)


def _use_and_restart(run: EdgeRun, folder: Path) -> None:
    limits = f"ulimit -n {DESCRIPTORS}"
    server = run.start(folder=folder, shell_limits=limits, preload=False)
    topics = [f"topic-{number}" for number in range(TOPICS)]
    for topic in topics:
        server.create_topic(topic, QUEUES)
    with server.client() as client:
        for topic in topics:
            codes = run.traffic.send(client, topic, range(QUEUES))
            run.expect(set(codes) == {0}, f"sends to the queues of {topic}: {sorted(set(codes))}")
        once_more = run.random.sample(range(QUEUES), 200)
        run.traffic.send(client, topics[0], once_more)
    run.stop(server, sound=False)
    again = run.start(folder=folder, shell_limits=limits, preload=False)
    with again.client() as client:
        for topic in topics:
            run.traffic.read_each(client, topic, range(QUEUES))
    run.say(f"{TOPICS * QUEUES} queues with {DESCRIPTORS} descriptors, started again in {again.start_s:.2f} s")
    run.stop(again)
