"""The order-timeout story through Spark, from a table of flights to a report that adds up.

    python -m examples.order_timeout_spark.story [--orders 20000|full] [--page DIRECTORY] [--keep DIRECTORY]

It starts a server and a Spark of its own and ends both. Exits with 1 when anything differs from the computation by hand, with 2
when a stage could not be carried out, and with 130 when it was interrupted.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import signal
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import functions as f
from rich.console import Console
from rich.text import Text

import orbitmq.sync
from examples.order_timeout.orders import State, table_path
from examples.order_timeout.server import own_server
from examples.order_timeout_spark.books import REFUNDED, Difference, Total, computed_by_hand, differences, state_of
from examples.order_timeout_spark.deciding import DECISIONS, decide, keep_totals
from examples.order_timeout_spark.figures import Archive, Figures, happened, measure
from examples.order_timeout_spark.report import print_report, print_verdict
from examples.order_timeout_spark.running import Streams, Watch, patiently, spark_session
from examples.order_timeout_spark.scheduling import (
    CLOSING,
    PAYMENTS,
    TIMEOUTS,
    extent,
    read_orders,
    schedule,
    timed,
)
from examples.order_timeout_spark.stages import OneStage, StageError, Stages
from examples.order_timeout_spark.timetable import LONGEST_ALLOWED_MS, Timetable, timetable_for
from orbitmq.spark.pipelines import Run, Summary, archive, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_ORDERS: Final = 20_000
TOPICS: Final = (TIMEOUTS, PAYMENTS, DECISIONS)
QUEUES: Final = 2
"""Of each topic: as many as there are cores to read them."""

TOLERANCE_MS: Final = 5_000
"""How much later than others a message may come and still count; more when the schedule itself was late."""

FOLLOW_EVERY_S: Final = 0.3
LOOK_EVERY_S: Final = 1.0

ANSWER_LIMIT_MS: Final = 30_000
PATIENCE_S: Final = 300
"""How long an answer of the server may take, and the streams to start and to end after closing time: seconds on a machine that has
nothing else to do."""

PAGE_SPAN_MS: Final = 5_000


@dataclass(frozen=True)
class Played:
    """What is there when everything has happened."""

    order_count: int
    timetable: Timetable
    totals: dict[str, Total]
    watch: Watch
    archived: Summary
    archive: str
    """The directory of the archive."""


def cut_table(source: Path, target: Path, order_count: int | None) -> None:
    """The table of the run: a CSV file with the first flights of the package's, all of them for None."""
    with (
        zipfile.ZipFile(source) as archived,
        archived.open(archived.namelist()[0]) as flights,
        target.open("wb") as file,
    ):
        file.writelines(itertools.islice(flights, None if order_count is None else order_count + 1))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def play(spark: SparkSession, name_server: str, table: Path, directory: Path, stages: Stages) -> Played:
    """Everything that happens: schedule, stream, archive. `directory` gets the checkpoints and the archive."""
    patient = orbitmq.sync.ClientOptions(
        connect_timeout_ms=ANSWER_LIMIT_MS, request_timeout_ms=ANSWER_LIMIT_MS, admin_timeout_ms=ANSWER_LIMIT_MS
    )
    with orbitmq.sync.connect(name_server, options=patient) as mq:
        for topic in TOPICS:
            mq.admin.create_topic(topic, queues_count=QUEUES)
        order_count, timetable, late_ms = schedule_all(spark, mq, name_server, table, stages)
        totals, watch = stream_all(
            spark, mq, name_server, order_count, timetable, late_ms, directory / "checkpoints", stages
        )
    target = str(directory / "archive")
    archived = archive(spark, to=target, name_server=name_server, topic=TOPICS, run=Run(progress=stages))
    return Played(order_count, timetable, totals, watch, archived, target)


# --- the stages -------------------------------------------------------------------------------------------------------


def schedule_all(
    spark: SparkSession, mq: orbitmq.sync.Client, name_server: str, table: Path, stages: Stages
) -> tuple[int, Timetable, int]:
    """Schedule payments and time-outs: how many orders, the timetable, and by how much the schedule was late, normally 0."""
    with stages.stage("orders read") as stage:
        orders = read_orders(spark, str(table))
        order_count, first_minute, last_minute = patiently(lambda: extent(orders), stage.tell)
        stage.reach(order_count)
        # The first write of a session starts processes and takes seconds. They pass before the clock of the story runs.
        nothing = orders.limit(0).withColumn("due_ms", f.lit(0))
        patiently(lambda: schedule(nothing, "due_ms", name_server, TIMEOUTS, "demo-nothing"), stage.tell)
    timetable = timetable_for(now_ms(), order_count, first_minute, last_minute)
    instants = timed(orders, timetable)
    payments = instants.where("paid_ms IS NOT NULL")
    job = f"demo-{timetable.first_due_ms}"
    with stages.stage("payments scheduled") as stage, followed(mq, PAYMENTS, stage):
        patiently(lambda: schedule(payments, "paid_ms", name_server, PAYMENTS, job), stage.tell)
    with stages.stage("time-outs scheduled", order_count) as stage, followed(mq, TIMEOUTS, stage):
        patiently(lambda: schedule(instants, "due_ms", name_server, TIMEOUTS, job), stage.tell)
    late_ms = max(0, now_ms() - timetable.opens_ms)
    if late_ms:
        stages.console.print(
            f"The schedule was ready {late_ms / 1000:.1f} s after the first message was due: what was late because of that "
            "counts as late below, and the streams wait so much longer for stragglers."
        )
    return order_count, timetable, late_ms


@contextmanager
def followed(mq: orbitmq.sync.Client, topic: str, stage: OneStage) -> Iterator[None]:
    """While a job runs here, show from another thread how many timer messages of its topic the broker has taken."""
    ended = threading.Event()

    def show() -> None:
        while not ended.wait(FOLLOW_EVERY_S):
            stage.reach(taken(mq, topic))

    with ThreadPoolExecutor(1) as thread:
        shown = thread.submit(show)
        try:
            yield
        finally:
            ended.set()
        shown.result()
    stage.reach(taken(mq, topic))


def stream_all(
    spark: SparkSession,
    mq: orbitmq.sync.Client,
    name_server: str,
    order_count: int,
    timetable: Timetable,
    late_ms: int,
    checkpoints: Path,
    stages: Stages,
) -> tuple[dict[str, Total], Watch]:
    """Decide everything as it falls due, until the watermark has passed the last order: the running totals in the end."""
    tolerance_ms = TOLERANCE_MS + late_ms
    closing_ms = timetable.ends_ms + LONGEST_ALLOWED_MS + tolerance_ms + 1_000
    for topic in (TIMEOUTS, PAYMENTS):
        body = msgspec.json.encode({"order": f"{CLOSING} of {topic}", "cents": 0})
        mq.send(topic, body, tag=CLOSING, at=closing_ms, timeout_ms=ANSWER_LIMIT_MS)
    watch = Watch()
    spark.streams.addListener(watch)
    try:
        with stages.stage("orders decided", order_count) as stage, Streams(stage.tell) as streams:
            stage.tell("the streams start")
            streams.start("decisions", decide(spark, name_server, tolerance_ms, str(checkpoints / "decisions")))
            # One after the other: what starts at the same time starts slowly.
            wait(lambda: watch.batches("decisions") > 0, streams, "the first batch of decisions", PATIENCE_S)
            streams.start("totals", keep_totals(spark, name_server, str(checkpoints / "totals")))

            def finished() -> bool:
                totals = running_totals(spark)
                note = ", ".join(f"{decision} {total.orders:,}" for decision, total in sorted(totals.items()))
                stage.reach(sum(total.orders for decision, total in totals.items() if decision != REFUNDED), note)
                if watch.watermark_ms("decisions") < closing_ms - tolerance_ms:
                    return False
                return watch.rows("totals") >= messages_in(mq, DECISIONS)

            limit_s = max(0, closing_ms - now_ms()) / 1000 + PATIENCE_S
            wait(finished, streams, "the watermark to pass closing time and the totals to follow", limit_s)
            return running_totals(spark), watch
    finally:
        spark.streams.removeListener(watch)


def wait(condition: Callable[[], bool], streams: Streams, what: str, limit_s: float) -> None:
    ends = time.monotonic() + limit_s
    while not condition():
        streams.check()
        if time.monotonic() > ends:
            raise TimeoutError(f"waited {limit_s:.0f} s for {what}")
        time.sleep(LOOK_EVERY_S)


def running_totals(spark: SparkSession) -> dict[str, Total]:
    if not spark.catalog.tableExists("totals"):
        return {}
    return {row.decision: Total(row.orders, row.cents) for row in spark.table("totals").collect()}


def taken(mq: orbitmq.sync.Client, topic: str) -> int:
    """Timer messages of a topic that wait, and those that are due already if the job is that late. One between the two counts twice."""
    waiting = mq.timers.counts(topic=topic).by_topic.get(topic, 0)
    return waiting + messages_in(mq, topic)


def messages_in(mq: orbitmq.sync.Client, topic: str) -> int:
    return sum(bounds.max_offset - bounds.min_offset for bounds in mq.admin.topic_stats(topic).values())


# --- the end ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Concluded:
    """What the archive says, beside what had to come out."""

    figures: Figures
    states: Mapping[State | None, int]
    computed: Mapping[State, int]
    found: Sequence[Difference]


def conclude(spark: SparkSession, played: Played, table: Path, stages: Stages) -> Concluded:
    """Measure what was archived, and compare every order with what is computed from `table` by hand."""
    archived = Archive(spark, played.archive)
    with stages.stage("measured") as stage:
        figures = measure(archived, played.timetable.first_due_ms)
        stage.reach(sum(spread.count for spread in (*figures.by_topic.values(), *figures.decided_after.values())))
    with stages.stage("compared", played.order_count) as stage:
        with table.open(encoding="utf-8", newline="") as file:
            books = computed_by_hand(csv.DictReader(file), played.timetable)
        orders = happened(archived)
        found = differences(books, orders, played.totals)
        stage.reach(len(orders))
    lost = played.archived.rows_quarantined + played.archived.rows_skipped
    if lost:
        found.append(Difference("messages that could not be archived", lost))
    states = Counter(map(state_of, orders.values()))
    return Concluded(figures, states, Counter(expected.state for expected in books.values()), found)


def write_page(spark: SparkSession, played: Played, page: Path, stages: Stages) -> None:
    """The report of orbitmq's own pipeline: a page with plots, and its figures as Parquet."""
    with stages.stage("page written") as stage:
        summary = report(spark, to=str(page), archive=played.archive, per_ms=PAGE_SPAN_MS, title="Order time-outs")
        stage.reach(summary.rows_read)


def rates(played: Played, figures: Figures, seconds: Mapping[str, float]) -> list[tuple[str, str]]:
    """What the run moved, and how fast, as texts."""
    scheduled = sum(spread.count for spread in figures.by_topic.values())
    scheduling_s = seconds["payments scheduled"] + seconds["time-outs scheduled"]
    watch, archived = played.watch, played.archived
    return [
        ("timer messages scheduled", f"{scheduled:,} at {scheduled / scheduling_s:,.0f}/s"),
        ("time-outs in the busiest second", f"{figures.busiest_second:,}"),
        (
            "messages joined to decisions",
            f"{watch.rows('decisions'):,} in {watch.batches('decisions')} batches of {watch.batch_ms('decisions'):,.0f} ms",
        ),
        ("messages archived", f"{archived.rows_written:,} at {archived.rows_written / archived.seconds:,.0f}/s"),
    ]


def run(options: argparse.Namespace, directory: Path, console: Console) -> int:
    """The whole story, in a directory of its own; gives the exit code."""
    began = time.monotonic()
    table = directory / "flights.csv"
    stages = Stages(console)
    with stages, own_server(console, directory) as name_server:
        cut_table(table_path(), table, options.orders)
        with spark_session(directory, stages) as spark:
            interrupt_once()  # Spark brought a handler of its own
            played = play(spark, name_server, table, directory, stages)
            concluded = conclude(spark, played, table, stages)
            if options.page is not None:
                write_page(spark, played, options.page, stages)
    if options.page is not None:
        console.print(f"the report with plots: {options.page / 'report.html'}", soft_wrap=True)
    return tell(console, played, concluded, stages.seconds, time.monotonic() - began)


def tell(
    console: Console, played: Played, concluded: Concluded, stage_seconds: Mapping[str, float], seconds: float
) -> int:
    """Print the report and the verdict; gives the exit code."""
    moved = rates(played, concluded.figures, stage_seconds)
    print_report(console, concluded.figures, concluded.states, concluded.computed, played.totals, moved)
    dropped = played.watch.dropped("decisions")
    if dropped:
        console.print(
            f"{dropped:,} messages came later than the streams wait: this machine is too busy for so many orders"
        )
    print_verdict(console, concluded.found, played.order_count, seconds)
    return 1 if concluded.found else 0


def interrupt_once() -> None:
    """The first Ctrl-C, or SIGTERM, ends the story in order; further ones do not disturb it in that."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


@contextmanager
def working_directory(keep: Path | None) -> Iterator[Path]:
    """Where everything lies: a temporary directory, or one that stays and has to be empty."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="orbitmq-demo-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)
        return
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise SystemExit(f"{keep} is not empty; name another directory, or leave it away")
    yield keep.resolve()


def order_count(text: str) -> int | None:
    """A number of orders, None for all of the table."""
    if text == "full":
        return None
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of orders nor 'full'")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--orders", type=order_count, default=DEFAULT_ORDERS, help="how many flights become orders, or 'full'"
    )
    parser.add_argument("--page", type=Path, help="a directory for the report with plots, report.html")
    parser.add_argument(
        "--keep", type=Path, help="an empty directory for store, archive, checkpoints and logs, which stays"
    )
    options = parser.parse_args(arguments)
    console = Console()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    interrupt_once()
    try:
        with working_directory(options.keep) as directory:
            return run(options, directory, console)
    except KeyboardInterrupt:
        console.print("interrupted; nothing is left behind", style="yellow")
        return 130
    except StageError as problem:
        console.print(Text(str(problem), style="bold red"))
        return 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
