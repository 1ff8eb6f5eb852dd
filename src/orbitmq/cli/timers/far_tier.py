"""`orbitmq timer far`: the files of timer messages that are due late: status, compact, repair, restore.

Rules of this file
1. `restore` ends when everything is near, or says what is left and why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.asking.cluster_access import run
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.output import note, show_rows
from orbitmq.limits.cli import FAR_TIER_LOOK_S

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.protocol.remoting.timer_bodies import FarTierState

app = typer.Typer(
    help="Files of timer messages that are due late: status, compact, repair, restore.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

COLUMNS = ("broker", "takes", "pending", "in_log", "files", "rows", "tombstones", "next_due_ms", "damaged", "trouble")

WaitOption = Annotated[int, typer.Option("--wait", min=0, help="Seconds to wait for the end; 0 only begins it.")]


def _until(action: str, wait_s: int, is_done: Callable[[FarTierState], bool]) -> dict[str, FarTierState]:
    """Begin an action, and look again until it is done on all brokers or the time has passed."""
    import asyncio

    from orbitmq.protocol.remoting.timer_bodies import FarTierAction

    async def ask(mq: Client) -> dict[str, FarTierState]:
        states = await mq.timers.far_tier(FarTierAction(action))
        looks = int(wait_s / FAR_TIER_LOOK_S)
        while looks > 0 and not all(map(is_done, states.values())):
            looks -= 1
            await asyncio.sleep(FAR_TIER_LOOK_S)
            states = await mq.timers.far_tier()
        return states

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
            "loaded_jobs": state.loaded_jobs,
        }
        for name, state in states.items()
    ]
    show_rows(rows, columns=COLUMNS, empty="no broker")
    for name, state in states.items():
        for file, reason in state.damaged.items():
            note(f"{name}: {file} is left out: {reason}")
        for job, progress in state.loading.items():
            note(f"{name}: job {job} loads files: {progress}")
        if not state.is_installed:
            note(
                f"{name}: pyarrow is not installed beside this broker; timer messages that are due late wait with the near ones"
            )


@app.command(cls=ClusterCommand)
def status() -> None:
    """Show the far tier of every broker."""
    states = _until("status", 0, lambda _: True)
    _show(states)
    if any(state.damaged or state.trouble for state in states.values()):
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=ClusterCommand)
def compact(wait: WaitOption = 0) -> None:
    """Write what waits in the log to files, and small files to larger ones, now.

    With --wait it ends when every message is in a file, and the manifest beside the files names it.
    """
    states = _until("compact", wait, lambda state: state.in_log == 0 and state.is_published)
    _show(states)
    if wait and any(state.in_log or not state.is_published for state in states.values()):
        note("not everything is in files yet; look at `orbitmq timer far status`")
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=ClusterCommand)
def repair(wait: WaitOption = 60) -> None:
    """Get what can be read out of damaged files, and give the rest up.

    Row groups that can be read were written anew when the damage was found. Put a sound copy of a damaged file in its place first, if there
    is one: then nothing is lost. What cannot be read goes to the quarantine topic, with due time and topic; the damaged file is removed.
    """
    states = _until("repair", wait, lambda state: not state.damaged)
    _show(states)
    if any(state.damaged for state in states.values()):
        note("of some files not even the index can be read; look at `orbitmq timer far status` and the broker's log")
        raise typer.Exit(ExitCode.FAILED)


@app.command(cls=ClusterCommand)
def restore(wait: WaitOption = 600) -> None:
    """Move everything to the near ones, before the stores go back to a Java broker.

    Nothing is taken into the far tier any more until the broker starts again. Stop the broker when this has ended.
    """
    states = _until("restore", wait, lambda state: state.pending == 0)
    _show(states)
    if any(state.pending for state in states.values()):
        note("messages are left in the far tier; run the command again, or look at `orbitmq timer far status`")
        raise typer.Exit(ExitCode.FAILED)
