"""`orbitmq protocol`: the table of codes, and how much of the protocol is covered by replayed exchanges.

Rules of this file
1. A request code counts as covered only when recorded exchanges between official programs were replayed against our
   servers and the answers agreed. The test that replays them writes `coverage.json`; nothing here guesses.
2. `coverage.json` maps a request code to `{"replayed": n}`, n being the number of exchanges that agreed.
"""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.output import note, show_rows
from orbitmq.cli.shared_options import OutputCommand

app = typer.Typer(
    help="The protocol: codes, coverage.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.command(cls=OutputCommand)
def codes(
    responses: Annotated[bool, typer.Option("--responses", help="Response codes instead of request codes.")] = False,
) -> None:
    """List the request codes with their header fields, or the response codes."""
    from orbitmq.protocol.remoting.commands import HEADERS, RequestCode, ResponseCode

    if responses:
        show_rows([{"code": code.value, "name": code.name} for code in ResponseCode], columns=("code", "name"))
        return
    rows: list[dict[str, object]] = []
    for code in RequestCode:
        header = HEADERS.get(code)
        rows.append(
            {
                "code": code.value,
                "name": code.name,
                "request_fields": [field.name for field in header.request] if header else [],
                "response_fields": [field.name for field in header.response] if header else [],
            }
        )
    show_rows(rows, columns=("code", "name", "request_fields", "response_fields"))


@app.command(cls=OutputCommand)
def coverage(
    missing: Annotated[bool, typer.Option("--missing", help="Only codes that are not covered.")] = False,
) -> None:
    """List all request codes and how many recorded exchanges of each were replayed with equal results."""
    from orbitmq.protocol.remoting.codes import UNUSED_CODES, RequestCode

    replayed = replayed_exchanges()
    rows: list[dict[str, object]] = [
        {
            "code": code.value,
            "name": code.name,
            "state": "implemented" if replayed.get(code.value) else "unused" if code in UNUSED_CODES else "missing",
            "replayed": replayed.get(code.value, 0),
        }
        for code in RequestCode
    ]
    covered = sum(1 for row in rows if row["replayed"])
    shown = [row for row in rows if not missing or row["state"] == "missing"]
    show_rows(shown, columns=("code", "name", "state", "replayed"), empty="nothing is missing")
    note(
        f"{covered} of {len(rows) - len(UNUSED_CODES)} request codes are covered by replayed exchanges; "
        f"{len(UNUSED_CODES)} more are names that RocketMQ's servers do not answer either"
    )


def replayed_exchanges() -> dict[int, int]:
    """Request code -> number of replayed exchanges, from the file that the replay test wrote."""
    from importlib import resources

    import msgspec

    from orbitmq.errors import ConfigurationError

    data = resources.files("orbitmq.cli").joinpath("coverage.json").read_bytes()
    try:
        table = msgspec.json.decode(data, type=dict[int, dict[str, int]])
    except msgspec.MsgspecError as error:
        raise ConfigurationError(f"coverage.json is not a table of replayed exchanges: {error}") from error
    return {code: counts.get("replayed", 0) for code, counts in table.items()}
