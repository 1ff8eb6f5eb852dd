"""The comparator: one Kafka broker in KRaft mode, and Spark's source and sink for Kafka, both from their released jars.

Rules of this file
1. Jars come through Maven, once, into the build cache. What cannot be had raises `Missing` with the reason.
2. The broker listens on loopback, keeps its data below a given folder, and only the process started here is ended.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

import rigpath

# isort: split
from rig.process import ServerProcess, free_ports
from rig.toolchain import Missing, built, java_program, program, run

KAFKA_VERSION: Final = "4.1.0"
CONNECTOR_VERSION: Final = "4.2.0"
TOKENS_VERSION: Final = "4.0.0"
"""Of the connector's part for delegation tokens, which is there but has nothing to do: the latest one that Maven finds everywhere."""
PROJECT: Final = rigpath.REPOSITORY / "benchmarks" / "spark" / "pom.xml"
START_LIMIT_S: Final = 60
FORMAT_LIMIT_S: Final = 60
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
SETTINGS: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions={queues}
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
"""


def jars(profile: str) -> Path:
    """The folder of the jars of `connector` or `broker`. Cost: half a minute once."""
    maven = program("mvn", "install Maven 3.8 or newer (Debian: apt install maven)")
    versions = [
        f"-Dkafka.version={KAFKA_VERSION}",
        f"-Dconnector.version={CONNECTOR_VERSION}",
        f"-Dtokens.version={TOKENS_VERSION}",
    ]

    def build(target: Path) -> None:
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
        run([maven, "-q", "-B", "-f", PROJECT, f"-P{profile}", *versions, f"-DbuildDirectory={target}", *goal])

    return built(f"kafka-{profile}", [PROJECT, Path(__file__)], build)


def connector_jars() -> str:
    """The setting `spark.jars`."""
    return ",".join(str(jar) for jar in sorted(jars("connector").glob("*.jar")))


class KafkaBroker:
    """One broker, its own controller. Topics come into being with their first message, `queues` partitions each."""

    def __init__(self, folder: Path, queues: int) -> None:
        self.folder = folder
        self.queues = queues
        self.process: ServerProcess | None = None
        self.port, controller = free_ports()
        folder.mkdir(parents=True, exist_ok=True)
        self._settings = folder / "server.properties"
        self._settings.write_text(
            SETTINGS.format(port=self.port, controller=controller, data=folder / "data", queues=queues)
        )
        self._log = folder / "kafka.log"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Format the store, start, and wait until it serves. Raises `Missing` when that fails."""
        command = [java_program()]
        path = ["-cp", f"{jars('broker')}/*"]
        formatting = [*command, *path, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._settings]
        try:
            done = subprocess.run(
                [str(word) for word in formatting], capture_output=True, text=True, timeout=FORMAT_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise Missing(f"Kafka's storage tool took more than {FORMAT_LIMIT_S} s") from error
        if done.returncode:
            raise Missing(f"Kafka's storage tool failed: {(done.stdout + done.stderr)[-1000:]}")
        heap = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC"]
        self.process = ServerProcess([*command, *heap, *path, "kafka.Kafka", self._settings], self._log)
        begin = time.monotonic()
        while not self._listens():
            if not self.process.running or time.monotonic() > begin + START_LIMIT_S:
                tail = self.process.tail()
                self.kill()
                raise Missing(f"Kafka does not start:\n{tail}")
            time.sleep(0.1)

    def _listens(self) -> bool:
        """Kafka opens its port to clients last."""
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End it and remove its store."""
        if self.process is not None and self.process.running:
            self.process.kill()
        shutil.rmtree(self.folder / "data", ignore_errors=True)
