"""`serve`, `nameserver`, `broker`: run a server in the foreground.

Rules of this file
1. These commands only read the configuration and hand over to the server's lifecycle.
2. Warnings about the configuration go to standard error, one line each, before anything listens.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.output import note

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
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, as in broker.conf.", show_default=False),
]


def serve(
    data: DataOption = None,
    host: HostOption = None,
    nameserver_port: NameserverPortOption = None,
    broker_port: BrokerPortOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Run name server and broker in one process, in the foreground, until SIGTERM or Ctrl-C."""
    _run(("nameserver", "broker"), data, host, nameserver_port, broker_port, config, settings)


def nameserver(
    data: DataOption = None,
    host: HostOption = None,
    nameserver_port: NameserverPortOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Run a name server alone."""
    _run(("nameserver",), data, host, nameserver_port, None, config, settings)


def broker(
    data: DataOption = None,
    host: HostOption = None,
    broker_port: BrokerPortOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    namesrv: Annotated[
        str | None, typer.Option("--namesrv", help="Name servers to register with, `;` between.", show_default=False)
    ] = None,
) -> None:
    """Run a broker alone; it registers with the name servers given by --namesrv or namesrvAddr."""
    flags = list(settings or [])
    if namesrv is not None:
        flags.append(f"namesrvAddr={namesrv}")
    _run(("broker",), data, host, None, broker_port, config, flags)


def _run(
    roles: tuple[str, ...],
    data: Path | None,
    host: str | None,
    nameserver_port: int | None,
    broker_port: int | None,
    config: Path | None,
    flags: list[str] | None,
) -> None:
    from orbitmq.server import lifecycle
    from orbitmq.server.settings import Overrides, Role, load_settings

    server_settings = load_settings(
        roles=[Role(role) for role in roles],
        config=config,
        environment=os.environ,
        flags=flags or [],
        overrides=Overrides(data=data, host=host, nameserver_port=nameserver_port, broker_port=broker_port),
    )
    for warning in server_settings.warnings:
        note(f"warning: {warning}")
    raise typer.Exit(lifecycle.serve(server_settings))
