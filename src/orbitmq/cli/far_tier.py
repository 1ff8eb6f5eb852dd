"""`orbitmq timer far`: the files of timer messages that are due late: status, compact, restore.

Rules of this file
1. `restore` ends when everything is in the timer wheel, or says what is left and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.cluster_access import run
from orbitmq.cli.exit_codes import ExitCode
from orbitmq.cli.output import note, show_rows
from orbitmq.cli.shared_options import ClusterCommand

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.protocol.remoting.timer_bodies import FarTierState

app = typer.Typer(
    help="Files of timer messages that are due late: status, compact, restore.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

COLUMNS = ("broker", "takes", "pending", "in_log", "files", "rows", "tombstones", "next_due_ms", "damaged", "trouble")
LOOK_S = 0.5

WaitOption = Annotated[int, typer.Option("--wait", min=0, help="Seconds to wait for the end; 0 only begins it.")]


def _states(action: str) -> dict[str, FarTierState]:
    from orbitmq.protocol.remoting.timer_bodies import FarTierAction

    chosen = FarTierAction(action)

    async def ask(mq: Client) -> dict[str, FarTierState]:
        return await mq.timers.far_tier(chosen)

    return run(ask)


def _show(states: dict[str, FarTierState]) -> None:
    rows = [
        {
            "broker": name,
            "takes": state.takes_messages,
            "pending": state.pending,
            "in_log": state.in_log,
            "files": state.files,
            "rows": state.file_rows,
            "tombstones": state.tombstones,
            "next_due_ms": state.next_due_ms,
            "damaged": len(state.damaged),
            "trouble": state.trouble,
        }
        for name, state in states.items()
    ]
    show_rows(rows, columns=COLUMNS, empty="no broker")
    for name, state in states.items():
        for file, reason in state.damaged.items():
            note(f"{name}: {file} is left out: {reason}")
        if not state.is_installed:
            note(
                f"{name}: pyarrow is not installed beside this broker; timer messages that are due late wait in its wheel"
            )


@app.command(cls=ClusterCommand)
def status() -> None:
    """Show the far tier of every broker."""
    states = _states("status")
    _show(states)
    if any(state.damaged or state.trouble for state in states.values()):
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=ClusterCommand)
def compact() -> None:
    """Write what waits in the log to files, and small files to larger ones, now."""
    _show(_states("compact"))


@app.command(cls=ClusterCommand)
def restore(wait: WaitOption = 600) -> None:
    """Move everything into the timer wheel, before the stores go back to a Java broker.

    Nothing is taken into the far tier any more until the broker starts again. Stop the broker when this has ended.
    """
    import asyncio

    from orbitmq.protocol.remoting.timer_bodies import FarTierAction

    async def move(mq: Client) -> dict[str, FarTierState]:
        states = await mq.timers.far_tier(FarTierAction.RESTORE)
        looks = int(wait / LOOK_S)
        while _is_left(states) and looks > 0:
            looks -= 1
            await asyncio.sleep(LOOK_S)
            states = await mq.timers.far_tier()
        return states

    states = run(move)
    _show(states)
    if _is_left(states):
        note("messages are left in the far tier; run the command again, or look at `orbitmq timer far status`")
        raise typer.Exit(ExitCode.FAILED)


def _is_left(states: dict[str, FarTierState]) -> bool:
    return any(state.pending for state in states.values())
