"""`orbitmq access user`: users of the brokers: list, show, create, update, delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from orbitmq.cli.asking.cluster_access import BrokerOption, ClusterOption, YesOption, run
from orbitmq.cli.asking.completing import complete_users
from orbitmq.cli.asking.shared_options import ClusterCommand
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.joined_rows import joined
from orbitmq.cli.shared.output import note, show_done, show_rows
from orbitmq.cli.shared.secret_input import PasswordCommandOption, PasswordFileOption, given_password

if TYPE_CHECKING:
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker, UserInfo

UserArgument = Annotated[
    str, typer.Argument(metavar="USER", help="Its name.", show_default=False, autocompletion=complete_users)
]
LIST_COLUMNS: Final = ("user", "type", "status", "brokers")

app = typer.Typer(
    help="Users: list, show, create, update, delete.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)


@app.command("list", cls=ClusterCommand)
def list_users(
    part: Annotated[str, typer.Option("--filter", "-f", help="Only names that contain this.", show_default=False)] = "",
    passwords: Annotated[
        bool, typer.Option("--passwords", help="Passwords as well, in JSON, as `access import` takes them.")
    ] = False,
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
) -> None:
    """List users, and which brokers have them. Brokers tell passwords to super users only."""
    if passwords and chosen_output() is not Output.JSON:
        raise typer.BadParameter("--passwords needs --json: no table shows a password")

    async def work(client: Client) -> Mapping[str, list[UserInfo]]:
        return await client.admin.users(part, broker=broker, cluster=cluster)

    _show(run(work), passwords=passwords)


@app.command(cls=ClusterCommand)
def show(user: UserArgument, broker: BrokerOption = None, cluster: ClusterOption = None) -> None:
    """Show one user, as the brokers have it."""

    async def work(client: Client) -> Mapping[str, UserInfo | None]:
        return await client.admin.user(user, broker=broker, cluster=cluster)

    found = {name: [info] for name, info in run(work).items() if info is not None}
    if not found:
        note(f"no broker knows a user {user!r}")
        raise typer.Exit(ExitCode.NOT_FOUND)
    _show(found)


@app.command(cls=ClusterCommand)
def create(
    user: Annotated[str, typer.Argument(metavar="USER", help="Its name.", show_default=False)],
    super_user: Annotated[bool, typer.Option("--super", help="It may do everything.")] = False,
    password_file: PasswordFileOption = None,
    password_command: PasswordCommandOption = None,
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Create a user. Its password is asked for, or read from a pipe; without policies it may do nothing."""
    password = given_password(password_file, password_command)

    async def work(client: Client) -> list[Broker]:
        return await client.admin.create_user(user, password, super_user=super_user, broker=broker, cluster=cluster)

    _done(f"user {user} is created", user, run(work))


@app.command(cls=ClusterCommand)
def update(
    user: UserArgument,
    password: Annotated[bool, typer.Option("--password", help="A new password, which is asked for.")] = False,
    password_file: PasswordFileOption = None,
    password_command: PasswordCommandOption = None,
    super_user: Annotated[
        bool | None, typer.Option("--super/--normal", help="May do everything, or what policies say.")
    ] = None,
    enabled: Annotated[
        bool | None, typer.Option("--enable/--disable", help="May call, or is refused everything.")
    ] = None,
    broker: BrokerOption = None,
    cluster: ClusterOption = None,
) -> None:
    """Change a user: its password, whether it is a super user, whether it may call at all."""
    changes_password = password or password_file is not None or password_command is not None
    if not changes_password and super_user is None and enabled is None:
        raise typer.BadParameter("say what is to change: --password, --super, --normal, --enable or --disable")
    new = given_password(password_file, password_command) if changes_password else None

    async def work(client: Client) -> list[Broker]:
        return await client.admin.update_user(
            user, password=new, super_user=super_user, enabled=enabled, broker=broker, cluster=cluster
        )

    _done(f"user {user} is changed", user, run(work))


@app.command(cls=ClusterCommand)
def delete(
    user: UserArgument, yes: YesOption = False, broker: BrokerOption = None, cluster: ClusterOption = None
) -> None:
    """Delete a user, and its policies with it."""
    if not yes:
        typer.confirm(f"delete user {user} and its policies?", abort=True, err=True)

    async def work(client: Client) -> list[Broker]:
        return await client.admin.delete_user(user, broker=broker, cluster=cluster)

    _done(f"user {user} is deleted", user, run(work))


def _show(by_broker: Mapping[str, list[UserInfo]], *, passwords: bool = False) -> None:
    """A row per user, several where brokers differ about it; in JSON as requests carry them, which `access import` takes."""
    rows = joined({broker: [_row(info, passwords) for info in infos] for broker, infos in by_broker.items()})
    rows.sort(key=lambda row: str(row["username"]))
    if chosen_output() is not Output.JSON:
        rows = [
            {"user": row["username"], "type": row["userType"], "status": row["userStatus"], "brokers": row["brokers"]}
            for row in rows
        ]
    show_rows(rows, columns=LIST_COLUMNS, empty="no users")


def _row(info: UserInfo, passwords: bool) -> dict[str, Any]:
    told = {"password": info.password} if passwords else {}
    return {"username": info.username, "userType": info.user_type, "userStatus": info.user_status, **told}


def _done(text: str, user: str, brokers: list[Broker]) -> None:
    names = [broker.name for broker in brokers]
    show_done(f"{text} on {', '.join(names)}", {"user": user, "brokers": names})
