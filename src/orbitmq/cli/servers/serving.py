"""`serve`: run a server in the foreground; `nameserver` and `broker` without a further command do the same for one role.

Rules of this file
1. These commands only read the configuration and hand over to the server's lifecycle.
2. A server whose log is JSON writes nothing else, whatever it ends by: also what stops its start is a line of it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.shared.exit_codes import ExitCode, exit_code_of
from orbitmq.errors import OrbitError

DataOption = Annotated[
    Path | None,
    typer.Option("--data", envvar="ORBITMQ_DATA", help="Directory of all data.", file_okay=False, show_default=False),
]
HostOption = Annotated[
    str | None, typer.Option("--host", help="Address to listen on; 127.0.0.1 if not given.", show_default=False)
]
NameserverPortOption = Annotated[
    int | None,
    typer.Option(
        "--nameserver-port", min=0, max=65535, help="Port of the name server; 9876 if not given.", show_default=False
    ),
]
BrokerPortOption = Annotated[
    int | None,
    typer.Option("--broker-port", min=0, max=65535, help="Port of the broker; 10911 if not given.", show_default=False),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", envvar="ORBITMQ_CONFIG", help="broker.conf or a .toml file.", show_default=False),
]
ProxyConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--proxy-config", envvar="ORBITMQ_PROXY_CONFIG", help="rmq-proxy.json of RocketMQ's proxy.", show_default=False
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, as in broker.conf.", show_default=False),
]
HttpOption = Annotated[
    bool | None,
    typer.Option("--http/--no-http", help="Serve /metrics, /healthz and /readyz, or do not.", show_default=False),
]
HttpPortOption = Annotated[
    int | None,
    typer.Option("--http-port", min=0, max=65535, help="Port for them; 5557 if not given.", show_default=False),
]
GrpcOption = Annotated[
    bool | None,
    typer.Option("--grpc/--no-grpc", help="Serve the gRPC clients of RocketMQ 5, or do not.", show_default=False),
]
GrpcPortOption = Annotated[
    int | None,
    typer.Option("--grpc-port", min=0, max=65535, help="Port for them; 8081 if not given.", show_default=False),
]
LogFormatOption = Annotated[
    str | None, typer.Option("--log-format", help="Form of the log lines: text or json.", show_default=False)
]
LogLevelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log-level", metavar="[PART=]LEVEL", help="Lowest level of log lines; INFO if not given.", show_default=False
    ),
]


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def serve(
    data: DataOption = None,
    host: HostOption = None,
    nameserver_port: NameserverPortOption = None,
    broker_port: BrokerPortOption = None,
    config: ConfigOption = None,
    proxy_config: ProxyConfigOption = None,
    settings: SetOption = None,
    http: HttpOption = None,
    http_port: HttpPortOption = None,
    grpc: GrpcOption = None,
    grpc_port: GrpcPortOption = None,
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Run name server and broker in one process, in the foreground, until SIGTERM or Ctrl-C."""
    flags = [
        *(settings or []),
        *watch_flags(http, http_port, log_format, log_level),
        *grpc_flags(grpc, grpc_port),
    ]
    run_roles(("nameserver", "broker"), data, host, nameserver_port, broker_port, config, flags, proxy_config)


def watch_flags(
    http: bool | None, http_port: int | None, log_format: str | None, log_level: list[str] | None
) -> list[str]:
    """These options as settings; behind others they win."""
    flags = []
    if http is not None:
        flags.append(f"httpEnable={'true' if http else 'false'}")
    if http_port is not None:
        flags.append(f"metricsPromExporterPort={http_port}")
    if log_format is not None:
        flags.append(f"logFormat={log_format}")
    if log_level:
        flags.append(f"logLevel={';'.join(log_level)}")
    return flags


def grpc_flags(grpc: bool | None, grpc_port: int | None) -> list[str]:
    """These options as settings."""
    flags = []
    if grpc is not None:
        flags.append(f"grpcEnable={'true' if grpc else 'false'}")
    if grpc_port is not None:
        flags.append(f"grpcServerPort={grpc_port}")
    return flags


def run_roles(
    roles: tuple[str, ...],
    data: Path | None,
    host: str | None,
    nameserver_port: int | None,
    broker_port: int | None,
    config: Path | None,
    flags: list[str] | None,
    proxy_config: Path | None = None,
) -> None:
    """Read the configuration and serve until told to stop; leaves with the exit code."""
    from orbitmq.server.process.garbage import collect_rarely

    collect_rarely()  # before what is imported now
    from orbitmq.server.process.signals import hold_signals, let_signals

    hold_signals()
    from orbitmq.server import lifecycle
    from orbitmq.server.configuration.settings import Overrides, Role, load_settings

    log_format = _asked_format(flags or [])
    try:
        server_settings = load_settings(
            roles=[Role(role) for role in roles],
            config=config,
            proxy_config=proxy_config,
            environment=os.environ,
            flags=flags or [],
            overrides=Overrides(data=data, host=host, nameserver_port=nameserver_port, broker_port=broker_port),
        )
        log_format = server_settings.watch.log_format
        code = lifecycle.serve(server_settings)
    except Exception as error:
        if log_format != "json":
            raise
        from orbitmq.telemetry.logs import begin_logging

        begin_logging("json", ())
        is_defect = not isinstance(error, OrbitError | OSError)
        logging.getLogger("orbitmq.server").critical("%s", error, exc_info=is_defect)
        code = exit_code_of(error) if isinstance(error, OrbitError) else ExitCode.FAILED
    finally:
        let_signals()
    raise typer.Exit(code)


def _asked_format(flags: list[str]) -> str:
    """The form of log lines before a configuration file is read, which may be what is wrong."""
    given = [text for key, _, text in (flag.partition("=") for flag in flags) if key == "logFormat"]
    return given[-1] if given else os.environ.get("ORBITMQ_LOG_FORMAT", "text")


def refuse_server_options(ctx: typer.Context) -> None:
    """Options for running a server have no meaning for a command to one that runs: a usage error."""
    given = [name for name, value in ctx.params.items() if value]
    if given:
        options = ", ".join("--set" if name == "settings" else "--" + name.replace("_", "-") for name in given)
        raise typer.BadParameter(f"{options}: belongs to running a server, not to `{ctx.invoked_subcommand}`")
