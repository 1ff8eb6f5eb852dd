"""`orbitmq version`: what is installed."""

from __future__ import annotations

import typer

from orbitmq.cli.asking.shared_options import OutputCommand
from orbitmq.cli.shared.output import show_record

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(cls=OutputCommand)
def version() -> None:
    """Show versions: ours, the RocketMQ version we present, Python; and whether the innermost loops run compiled."""
    import platform
    from importlib.metadata import version as installed

    from orbitmq import leaf
    from orbitmq.protocol.remoting.versions import OUR_VERSION, version_name

    show_record(
        {
            "orbitmq": installed("orbitmq"),
            "speaks_as_rocketmq": version_name(OUR_VERSION),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "innermost_loops": leaf.DESCRIPTION,
        }
    )
