"""The far half of a schedule: one broker takes all far rows of a job, as files that tasks write into its far tier.

The broker follows from the job's name and the brokers of its topics. Its answer is the job's only commit: which attempt's files count, and
where the rows are split into far ones and those that are sent. Every other run of the job hears the same.

Rules of this file
1. Before anything is written every broker of the topics knows, in the scope of the job, which one it is. A run that finds the topics
   with other brokers goes to that one, or fails while it is away.
2. Where files cannot be loaded the broker notes that all rows are sent. So no later run loads what was sent.
3. No file is removed here. What does not count the broker removes after a week.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orbitmq.clock import SystemClock
from orbitmq.errors import ClientError
from orbitmq.limits.spark import SCHEDULE_LOAD_PAUSE_MS, SCHEDULE_PROBES
from orbitmq.protocol.remoting.codes import RequestCode
from orbitmq.protocol.remoting.far_load_bodies import (
    FarLoadAction,
    FarLoadRequest,
    FarLoadState,
    FarLoadVerdict,
    LoadFile,
)
from orbitmq.protocol.remoting.idempotence_bodies import FinishEpoch
from orbitmq.spark.pipelines.collecting import collected
from orbitmq.spark.pipelines.run import Run
from orbitmq.spark.pipelines.scheduling.far_rows import FarTask
from orbitmq.spark.pipelines.scheduling.row_checks import LATEST_MS, DueLayout
from orbitmq.spark.pipelines.scheduling.tier_rows import Host
from orbitmq.spark.pipelines.task_reports import TaskReport, report_of, reported
from orbitmq.spark.reading.retrying import RetryClock
from orbitmq.spark.writing.scopes import BrokerSet, Writer
from orbitmq.spark.writing.sending import TaskSending
from orbitmq.spark.writing_options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ALL_MS: Final = LATEST_MS + 1
"""The split of a job whose rows are all sent."""


class Outcome(NamedTuple):
    """What became of the far rows. split_ms: rows due before it are to be sent; None when nobody was asked, and all are.
    report: what tasks read, None unless they did now. reason: why rows that are far are sent."""

    split_ms: int | None
    rows: int = 0
    files: int = 0
    broker: str = ""
    reason: str = ""
    report: TaskReport | None = None
    stopped: bool = False


class JobBroker(NamedTuple):
    """The broker of a job, and how many queues each topic has there."""

    name: str
    queues: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class FarLoad:
    """The far rows of one job. brief: nobody will start it again under this name."""

    spark: SparkSession
    job: str
    brief: bool
    options: WriteOptions
    sending: TaskSending
    run: Run

    def load(
        self,
        frame: DataFrame,
        layout: DueLayout,
        topics: Sequence[str],
        *,
        file_bytes: int,
        unable: str,
        check: Callable[[TaskReport], None],
    ) -> Outcome:
        """Have the far rows count. unable: why no files are to be written, if so. check: called with what tasks read before anything
        counts; what it raises ends the job."""
        if not topics:
            return Outcome(None)
        owner = self._owner(topics)
        if isinstance(owner, str):
            return Outcome(None, reason=owner)
        opened = self._ask(owner, topics[0], FarLoadRequest(FarLoadAction.OPEN, self.job))
        if opened.verdict is FarLoadVerdict.LOADED:
            return _outcome(opened, owner)
        task = FarTask(
            url=opened.url,
            stem=opened.stem,
            probe=(opened.probe, opened.probe_text),
            host=Host(bytes.fromhex(opened.store_host), opened.own.encode(), opened.precision_ms),
            queues=owner.queues,
            layout=layout,
            split_ms=opened.split_ms,
            now_ms=SystemClock().now_ms(),
            file_bytes=file_bytes,
        )
        if not unable and opened.verdict is FarLoadVerdict.NO_TIER:
            unable = f"broker {owner.name} takes no files: {opened.reason}"
        unable = unable or self._storage_problem(task)
        if unable:
            loaded = self._commit(owner, topics[0], opened, ALL_MS, [])
            return _outcome(loaded, owner)._replace(reason=unable)
        with self.run.progress.stage("far") as stage:
            rows = collected(self.spark, reported(frame, task.write), "writing far rows", stop=self.run.stop)
            if rows is None:
                return Outcome(None, stopped=True)
            report = report_of(rows)
            files = [_file(text, count) for text, count in report.files]
            stage.advance(sum(file.rows for file in files), size_bytes=sum(file.size_bytes for file in files), lag=0)
        check(report)
        loaded = self._commit(owner, topics[0], opened, opened.split_ms, files)
        return _outcome(loaded, owner)._replace(report=report)

    # --- which broker -----------------------------------------------------------------------------------------------

    def _owner(self, topics: Sequence[str]) -> JobBroker | str:
        """The job's broker, which all brokers of the topics know; or why there is none."""
        writer = Writer(f"{self.job}/far", 0, ends=True, brief=self.brief)
        known = {topic: self.sending.known(topic, writer.prefix(topic)) for topic in topics}
        for topic, found in known.items():
            if found.scopes is None:
                return f"a broker of topic {topic!r} is RocketMQ's, which takes no files"
        begun = {
            name
            for topic, found in known.items()
            for view in found.scopes or []
            if view.scope.startswith(writer.prefix(topic))
            and (brokers := BrokerSet.parse(view.scope[len(writer.prefix(topic)) :])) is not None
            for name in brokers.names
        }
        if len(begun) > 1:
            raise ClientError(
                f"two runs of job {self.job} began at once with different brokers: {', '.join(sorted(begun))}",
                remedy="give the job another idempotency_key, after a look at what is stored",
            )
        common = set.intersection(*(set(found.queue_counts) for found in known.values()))
        name = begun.pop() if begun else chosen(self.job, common)
        if name is None:
            return f"no broker has queues of all {len(topics)} topics"
        if name not in common:
            raise ClientError(
                f"broker {name} has the far rows of job {self.job}, and is in no route of its topics",
                remedy="start it, and the job again: what it has is delivered by it alone",
            )
        for topic, found in known.items():
            scope = writer.scope(topic, BrokerSet((name,), (found.queue_counts[name],)))
            for broker in sorted(found.queue_counts):
                self.sending.end_epoch(topic, broker, FinishEpoch(scope, 0, 0, self.brief), needed=True)
        return JobBroker(name, {topic: found.queue_counts[name] for topic, found in known.items()})

    # --- requests ---------------------------------------------------------------------------------------------------

    def _ask(self, owner: JobBroker, topic: str, request: FarLoadRequest) -> FarLoadState:
        answer = self.sending.ask(topic, owner.name, RequestCode.FAR_LOAD, request.encode(), f"loading job {self.job}")
        return FarLoadState.decode(answer)

    def _commit(
        self, owner: JobBroker, topic: str, opened: FarLoadState, split_ms: int, files: list[LoadFile]
    ) -> FarLoadState:
        """Have these files count, or those of another attempt if that was first. Returns when it is durable."""
        request = FarLoadRequest(FarLoadAction.LOAD, self.job, opened.attempt, opened.created_ms, split_ms, files)
        clock = RetryClock()
        checked, since_ms = -1, clock.now_ms()
        while True:
            state = self._ask(owner, topic, request)
            if state.verdict is FarLoadVerdict.LOADED:
                return state
            if state.verdict is not FarLoadVerdict.CHECKING:
                raise ClientError(
                    f"broker {owner.name} does not load the files of job {self.job}: {state.reason}",
                    remedy="nothing of them counts: start the job again",
                )
            if state.checked > checked or not state.reason:
                checked, since_ms = state.checked, clock.now_ms()
            elif clock.now_ms() - since_ms > self.options.retry_timeout_ms:
                raise ClientError(
                    f"broker {owner.name} cannot read the files of job {self.job}: {state.reason}",
                    remedy="look at its far tier, and start the job again: what it reads later counts all the same",
                )
            clock.sleep_ms(SCHEDULE_LOAD_PAUSE_MS)

    def _storage_problem(self, task: FarTask) -> str:
        """What a few tasks say that look for the tier's storage."""
        frame = reported(self.spark.range(0, SCHEDULE_PROBES, 1, SCHEDULE_PROBES), task.look)
        rows: Sequence[Any] = collected(self.spark, frame, "looking for the far tier") or ()
        return next((row["text"] for row in rows if row["text"]), "")


def _file(text: str, rows: int) -> LoadFile:
    """As a task reported it."""
    name, size_bytes, crc = json.loads(text)
    return LoadFile(name, size_bytes, crc, rows)


def chosen(job: str, brokers: set[str]) -> str | None:
    """The broker of a job, among these: whoever chooses among the same takes the same, and one more takes few jobs from the others."""
    return max(brokers, key=lambda name: blake2b(f"{job}\n{name}".encode(), digest_size=8).digest(), default=None)


def _outcome(loaded: FarLoadState, owner: JobBroker) -> Outcome:
    reason = "an earlier run of the job found that files cannot be loaded" if loaded.split_ms >= ALL_MS else ""
    return Outcome(loaded.split_ms, loaded.rows, loaded.files, owner.name, reason)
