"""`orbitmq protocol`: the table of codes, and how much of the protocol is covered by replayed exchanges.

Rules of this file
1. A request code counts as covered only when recorded exchanges between official programs were replayed against our
   servers and the answers agreed. The test that replays them writes `coverage.json`; nothing here guesses.
2. `coverage.json` maps a request code to `{"replayed": n}`, n being the number of exchanges that agreed, or to
   `{"judged_by": path}`: nothing could be recorded, and this test judges it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from importlib import resources
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from orbitmq.cli.asking.shared_options import OutputCommand
from orbitmq.cli.shared.output import note, show_rows
from orbitmq.errors import ConfigurationError

if TYPE_CHECKING:
    from orbitmq.protocol.remoting.codes import RequestCode
    from orbitmq.protocol.remoting.requests import RequestRow

app = typer.Typer(
    help="The protocol: codes, coverage.", no_args_is_help=True, rich_markup_mode=None, add_completion=False
)


@app.command(cls=OutputCommand)
def codes(
    responses: Annotated[bool, typer.Option("--responses", help="Response codes instead of request codes.")] = False,
) -> None:
    """List the request codes with their header fields, who serves them and what a caller needs, or the response codes."""
    from orbitmq.protocol.remoting.codes import ResponseCode
    from orbitmq.protocol.remoting.requests import REQUESTS

    if responses:
        show_rows([{"code": code.value, "name": code.name} for code in ResponseCode], columns=("code", "name"))
        return
    rows: list[dict[str, object]] = [
        {
            "code": code.value,
            "name": code.name,
            "served_by": sorted(server.value for server in row.served_by),
            "needs": row.needs_text,
            "request_fields": [field.name for field in row.header.request],
            "response_fields": [field.name for field in row.header.response],
        }
        for code, row in sorted(REQUESTS.items())
    ]
    show_rows(rows, columns=("code", "name", "served_by", "needs", "request_fields", "response_fields"))


class Coverage(StrEnum):
    """What is known of a request code."""

    REPLAYED = "replayed"
    SERVED = "served"
    REFUSED = "refused"
    UNUSED = "unused"


@app.command(cls=OutputCommand)
def coverage(
    state: Annotated[Coverage | None, typer.Option("--state", help="Only codes of this state.")] = None,
) -> None:
    """List the request codes: replayed (and how many exchanges), served (and which test judges it), refused (and why), unused."""
    known = list(request_states())
    rows: list[dict[str, object]] = [
        {"code": code.value, "name": code.name, "state": of_code.state.value, "by": of_code.by}
        for code, _, of_code in known
        if state is None or of_code.state is state
    ]
    show_rows(rows, columns=("code", "name", "state", "by"), empty="no request code is in this state")
    states = Counter(of_code.state for _, _, of_code in known)
    note(", ".join(f"{states[one]} {one.value}" for one in Coverage))


class RequestState(NamedTuple):
    """What is known of a request code, and who or what says so."""

    state: Coverage
    by: str

    def __str__(self) -> str:
        return f"{self.state.value}: {self.by}" if self.by else self.state.value


def request_states() -> Iterator[tuple[RequestCode, RequestRow, RequestState]]:
    """Every code in order, with its row."""
    from orbitmq.protocol.remoting.requests import REQUESTS

    judged = judged_requests()
    for code, row in sorted(REQUESTS.items()):
        judgement = judged.get(code.value, Judgement())
        if judgement.replayed:
            yield code, row, RequestState(Coverage.REPLAYED, f"{judgement.replayed} exchanges")
        elif row.served_by:
            yield code, row, RequestState(Coverage.SERVED, judgement.judged_by)
        else:
            yield code, row, RequestState(Coverage.REFUSED if row.refused else Coverage.UNUSED, row.refused)


class Judgement(msgspec.Struct, frozen=True):
    """What `coverage.json` says of a code."""

    replayed: int = 0
    judged_by: str = ""


def judged_requests() -> dict[int, Judgement]:
    """Request code -> who judged it, from the file that the tests wrote."""
    data = resources.files("orbitmq.cli").joinpath("coverage.json").read_bytes()
    try:
        return msgspec.json.decode(data, type=dict[int, Judgement])
    except msgspec.MsgspecError as error:
        raise ConfigurationError(f"coverage.json is not a table of judged requests: {error}") from error
