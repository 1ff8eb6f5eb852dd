"""`orbitmq bench`: how fast this program sends to a cluster and consumes from it, and how late its delays are.

Rules of this file
1. The figures are those of one process with one client on this machine, and its CPU stands beside them. Where that is the limit,
   they say nothing about the cluster: run several at once.
2. A message that was lost, or consumed twice, ends the command with 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orbitmq.cli.asking.cluster_access import TopicArgument, run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.instants import parse_span_ms
from orbitmq.cli.shared.output import note, show_record

if TYPE_CHECKING:
    from orbitmq.client import Client

app = typer.Typer(
    help="Measure a cluster: sending, consuming, delays.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

SizeOption = Annotated[int, typer.Option("--size", min=24, max=4_194_304, help="Bytes of a body.")]
InFlightOption = Annotated[int, typer.Option("--in-flight", min=1, max=4_096, help="Sends that wait for their answer.")]
DurationOption = Annotated[str, typer.Option("--duration", "-d", help="End after this time: 10s, 5m.")]
SendingDurationOption = Annotated[
    str | None,
    typer.Option(
        "--duration",
        "-d",
        help="End after this time: 10s, 5m. If not given: with --count however long that needs, else ten seconds, of delays five.",
        show_default=False,
    ),
]
RateOption = Annotated[
    float | None,
    typer.Option("--rate", min=0.01, help="Messages a second; as fast as it goes if not given.", show_default=False),
]

LEVELS_MS: Final = (
    1_000, 5_000, 10_000, 30_000, 60_000, 120_000, 180_000, 240_000, 300_000, 360_000, 420_000, 480_000, 540_000, 600_000,
    1_200_000, 1_800_000, 3_600_000, 7_200_000,
)  # fmt: skip
"""RocketMQ's default levels; a broker with a list of its own needs --delay-ms."""


@app.command(cls=ClusterCommand)
def send(
    topic: TopicArgument,
    size: SizeOption = 1_024,
    in_flight: InFlightOption = 16,
    duration: SendingDurationOption = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many.", show_default=False)] = None,
    rate: RateOption = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Tag of the messages.", show_default=False)] = None,
) -> None:
    """Send messages and show rate, latency, own CPU and failures. `bench consume --run` accounts for what arrives."""
    from orbitmq.cli.benches.bench_runs import SendPlan, SendRun

    plan = SendPlan(
        topic=topic,
        size=size,
        in_flight=in_flight,
        count=count,
        duration_s=_sending_s(duration, count, "10s"),
        rate=rate,
        tag=tag,
    )
    told = run(lambda client: SendRun(client, plan).run())
    _show(told)
    if told["failed"]:
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=ClusterCommand)
def consume(
    topic: TopicArgument,
    count: Annotated[
        int | None,
        typer.Option("--count", min=1, help="So many are expected: end with the last of them.", show_default=False),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run", help="Only messages of this run of `bench send`.", show_default=False)
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning/--from-end", help="Also what is there already.")
    ] = True,
    duration: DurationOption = "60s",
    idle: Annotated[str, typer.Option("--idle", help="End when nothing came for so long after the first.")] = "3s",
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=4_096, help="Handlers at a time.")] = 32,
) -> None:
    """Consume messages of `bench send` with a group of its own and show rate, age, own CPU, duplicates and what is missing."""
    from orbitmq.cli.benches.bench_runs import Consuming

    async def work(client: Client) -> dict[str, Any]:
        consuming = Consuming(client, topic, None if run_id is None else run_id.encode(), from_beginning=from_beginning)
        return await consuming.run(
            count=count,
            duration_s=parse_span_ms("--duration", duration) / 1000,
            idle_s=parse_span_ms("--idle", idle) / 1000,
            concurrency=concurrency,
        )

    told = run(work)
    told["missing"] = None if count is None else max(0, count - told["distinct"])
    _show(told)
    if told["missing"] or told["duplicates"]:
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=ClusterCommand)
def delay(
    topic: TopicArgument,
    level: Annotated[int, typer.Option("--level", "-l", min=1, max=256, help="Delay level of the messages.")] = 1,
    delay_ms: Annotated[
        int | None,
        typer.Option(
            "--delay-ms", min=1, help="What the level means here; RocketMQ's list if not given.", show_default=False
        ),
    ] = None,
    size: SizeOption = 128,
    in_flight: InFlightOption = 16,
    duration: SendingDurationOption = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many.", show_default=False)] = None,
    rate: RateOption = 200.0,
) -> None:
    """Send delayed messages, consume them, and show how late they came; early, lost and doubled ones are counted."""
    from orbitmq.cli.benches.bench_runs import SendPlan, run_delays

    if delay_ms is None:
        if level > len(LEVELS_MS):
            raise typer.BadParameter(f"--level {level} is not on RocketMQ's list; say what it means with --delay-ms")
        delay_ms = LEVELS_MS[level - 1]
    meant_ms = delay_ms
    plan = SendPlan(
        topic=topic,
        size=size,
        in_flight=in_flight,
        count=count,
        duration_s=_sending_s(duration, count, "5s"),
        rate=rate,
        delay_level=level,
    )
    told = run(lambda client: run_delays(client, plan, meant_ms))
    _show(told)
    if told["failed"] or told["lost"] or told["early"] or told["duplicates"]:
        raise typer.Exit(ExitCode.FAILED)


def _sending_s(duration: str | None, count: int | None, otherwise: str) -> float | None:
    """For how long is sent; None until the count is reached."""
    if duration is None and count is not None:
        return None
    return parse_span_ms("--duration", duration or otherwise) / 1000


def _show(told: Mapping[str, Any]) -> None:
    if chosen_output() is Output.JSON:
        show_record(told)
        return
    flat: dict[str, object] = {}
    for name, value in told.items():
        if name in ("latency", "age", "lateness"):
            flat |= {f"{name}_{part}": figure for part, figure in value.items()}
        elif value not in (None, {}):
            flat[name] = value
    show_record(flat)
    note("one process, one client; own CPU is this process's alone")
