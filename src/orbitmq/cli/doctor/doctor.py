"""`orbitmq doctor`: is this machine fit to run a server, and does a running one answer?

Rules of this file
1. Every check is one line: ok, warn or fail, what was seen, and for the last two a remedy.
2. Checks change nothing that stays: the only file written is removed at once.
3. The command ends with 1 when a check failed; warnings do not count.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.asking.shared_options import OutputCommand
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import show_rows

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(cls=OutputCommand)
def doctor(
    data: Annotated[
        Path, typer.Option("--data", envvar="ORBITMQ_DATA", help="Directory the data are, or will be, in.")
    ] = Path("orbitmq-data"),
    host: Annotated[str, typer.Option("--host", help="Address a server listens on.")] = "127.0.0.1",
    nameserver_port: Annotated[
        int, typer.Option("--nameserver-port", min=1, max=65535, help="Port of the name server.")
    ] = 9876,
    broker_port: Annotated[int, typer.Option("--broker-port", min=1, max=65535, help="Port of the broker.")] = 10911,
    grpc_port: Annotated[int, typer.Option("--grpc-port", min=1, max=65535, help="Port for gRPC.")] = 8081,
    http_port: Annotated[int, typer.Option("--http-port", min=1, max=65535, help="Port of metrics and health.")] = 5557,
    engine: Annotated[
        str, typer.Option("--engine", help="Ask this engine too, as replicationEngine of a broker.", show_default=False)
    ] = "",
    group: Annotated[
        str, typer.Option("--group", help="With --engine: look at the members of this group (brokerName).")
    ] = "",
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", help="A configuration file to check as well; `config check` tells of each of its keys."
        ),
    ] = None,
    password_file: Annotated[
        str, typer.Option("--engine-password-file", help="As replicationEnginePasswordFile.", show_default=False)
    ] = "",
) -> None:
    """Check Python, limits, disk, clock and ports, whether a running server answers, and the engine and members of a replicated group."""
    from orbitmq.cli.doctor.doctor_checks import Level, Ports, all_checks

    results = all_checks(data, host, Ports(nameserver_port, broker_port, grpc_port, http_port), config=config)
    if config is not None:
        from orbitmq.cli.doctor.doctor_checks import configuration

        results += configuration(config)
    if engine:
        from orbitmq.cli.doctor.doctor_engine import engine_checks
        from orbitmq.cli.replicas.replica_engine import parsed_engine

        results += engine_checks(parsed_engine(engine), group, password_file)
    rows = [
        {"level": result.level.value, "check": result.check, "found": result.found, "remedy": result.remedy}
        for result in results
    ]
    show_rows(rows, columns=("level", "check", "found", "remedy"))
    if any(result.level is Level.FAIL for result in results):
        raise typer.Exit(ExitCode.FAILED)
