"""`orbitmq cluster restart`: restart every broker of a cluster, one after the other, while clients send.

Rules of this file
1. What is done when is decided in `one_by_one`; here the cluster is looked at, and what was decided is done.
2. What cannot be asked counts as not seen: a broker that restarts, and its name server, are away for a while.
3. However it ends, write permission that was taken is given back first.
4. A command gets names and addresses that a shell reads as they are, or is not run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.asking.cluster_access import ClusterOption, YesOption, end_if_missing, expected, run
from orbitmq.cli.restarting.cluster_watch import ClusterWatch, monotonic_ms
from orbitmq.cli.restarting.one_by_one import ClusterMember, Doing, Effect, OneByOne, Seen, Waits
from orbitmq.cli.shared.chosen import Output, chosen_output
from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.cli.shared.instants import instant, parse_instant_ms, parse_span_ms
from orbitmq.cli.shared.output import note, print_line
from orbitmq.instants import span
from orbitmq.limits.cli import RESTART_COMMAND_CHARS_MAX, RESTART_LOOK_S, RESTART_NAMED_MAX

if TYPE_CHECKING:
    from orbitmq.cli.asking.expected_brokers import MissingBroker
    from orbitmq.cli.restarting.restart_mark import RestartMark
    from orbitmq.client import Client
    from orbitmq.client.admin import Broker

_PLAIN: Final = re.compile(r"[A-Za-z0-9_:\[][A-Za-z0-9_.:%@\[\]-]*")
"""What a shell and the programs that it starts take for a word and for no option."""

_PLACE: Final = re.compile(r"\{(broker|address|host)\}")


OneByOneOption = Annotated[
    bool, typer.Option("--one-by-one", help="One broker after the other; there is no other way yet.")
]
CommandOption = Annotated[
    str | None,
    typer.Option(
        "--restart-command",
        help="Restarts one broker and ends: ssh {host} systemctl restart orbitmq-broker. {broker}, {address} and {host} are filled in. "
        "Without it you are told whom to restart when.",
        show_default=False,
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since",
        help="Pass over brokers that were started since then: an instant, or a span before now such as 1h.",
        show_default=False,
    ),
]
WaitOption = Annotated[
    str, typer.Option("--wait", help="How long the last sender may take to leave, and copies to catch up.")
]
StartWaitOption = Annotated[str, typer.Option("--start-wait", help="How long a broker may take to be back.")]
IntervalOption = Annotated[
    str, typer.Option("--route-interval", help="How often clients look at their routes: the slowest of them.")
]
AlthoughOption = Annotated[
    bool, typer.Option("--although-sending", help="Restart a broker to which somebody still sends after --wait.")
]


def restart(
    one_by_one: OneByOneOption = False,
    cluster: ClusterOption = None,
    restart_command: CommandOption = None,
    since: SinceOption = None,
    wait: WaitOption = "5m",
    start_wait: StartWaitOption = "2m",
    route_interval: IntervalOption = "30s",
    although_sending: AlthoughOption = False,
    yes: YesOption = False,
) -> None:
    """Restart every broker of a cluster while clients send: to upgrade it, or for settings that count from a start on.

    Of each broker in turn the write permission is taken at the name servers, and when clients have seen that and nobody sends to it any
    more, it is restarted. When it is registered, and whoever copies has caught up, it is the next one's turn. Slaves come before their
    master.
    """
    if not one_by_one:
        raise typer.BadParameter("say --one-by-one: brokers are restarted one after the other")
    waits = Waits(
        parse_span_ms("--route-interval", route_interval),
        parse_span_ms("--wait", wait),
        parse_span_ms("--start-wait", start_wait),
    )
    if waits.leave_ms < waits.routes_ms + waits.quiet_ms:
        raise typer.BadParameter(
            f"--wait {wait} is over before every client has looked at its routes (--route-interval {route_interval}) "
            f"and {span(waits.quiet_ms)} more were silent"
        )
    if restart_command is not None and len(restart_command) > RESTART_COMMAND_CHARS_MAX:
        raise typer.BadParameter(
            f"--restart-command: {len(restart_command)} characters, at most {RESTART_COMMAND_CHARS_MAX}"
        )
    since_ms = None if since is None else parse_instant_ms("--since", since, _now_ms())
    end_if_missing(run(_missing))
    plan = run(lambda client: _plan(client, cluster, since_ms))
    _show(plan, restart_command)
    count = len(plan.members) - len(plan.skipped)
    if not yes:
        typer.confirm(f"Restart {count} brokers, one after the other?", abort=True, err=True)
    order = OneByOne(
        plan.members,
        waits,
        now_ms=monotonic_ms(),
        skipped=plan.skipped,
        nowhere_else=plan.nowhere_else,
        although_sending=although_sending,
        by_hand=restart_command is None,
    )

    async def work(client: Client) -> int:
        from orbitmq.cli.restarting.restart_mark import RestartMark

        mark = RestartMark(client, plan.cluster)
        await mark.take()
        return await _carry_out(RestartWork(client, mark, plan.members, order, restart_command, waits.start_ms))

    code = run(work)
    if code:
        raise typer.Exit(code)


class RestartPlan:
    """What is about to be done, and what to warn of."""

    def __init__(
        self, cluster: str, members: Sequence[ClusterMember], seen: Mapping[str, Seen], skipped: Collection[str]
    ) -> None:
        self.cluster = cluster
        self.members = members
        self.seen = seen
        self.skipped = skipped
        self.nowhere_else: set[str] = set()
        """Names that keep their write permission."""
        self.warnings: list[str] = []


def _show(plan: RestartPlan, command: str | None) -> None:
    """Raises ConfigurationError for a command that cannot be run for one of them: before anything is touched."""
    for member in plan.members:
        if command is not None:
            command_for(command, member)
        passed = ", is passed over" if member.address in plan.skipped else ""
        note(f"{member}: started {instant(plan.seen[member.address].started_ms or 0) or 'at an unknown time'}{passed}")
    for text in plan.warnings:
        note(f"warning: {text}")


async def _missing(client: Client) -> list[MissingBroker]:
    from orbitmq.cli.asking.expected_brokers import missing_brokers

    return await missing_brokers(client, expected(None))


async def _plan(client: Client, cluster: str | None, since_ms: int | None) -> RestartPlan:
    from orbitmq.errors import ConfigurationError, NotFoundError

    brokers = await client.admin.brokers(cluster)
    if not brokers:
        raise NotFoundError("no broker is registered at the name servers", remedy="start one")
    clusters = {broker.cluster for broker in brokers}
    if len(clusters) > 1:
        raise ConfigurationError(
            f"the name servers know the clusters {', '.join(sorted(clusters))}", remedy="say --cluster"
        )
    members = sorted(ClusterMember(broker.name, broker.address) for broker in brokers)
    seen = await ClusterWatch(client, members).look()
    skipped = {
        address
        for address, one in seen.items()
        if since_ms is not None and one.started_ms is not None and one.started_ms >= since_ms
    }
    plan = RestartPlan(brokers[0].cluster, members, seen, skipped)
    masters = [broker for broker in brokers if broker.is_master]
    if len({broker.name for broker in brokers}) == 1:
        plan.nowhere_else.add(brokers[0].name)
        plan.warnings.append(
            f"{brokers[0].name} is the only broker: sends wait while it is away, and fail if that is too long"
        )
        return plan
    for name, topics in sorted((await _topics_nowhere_else(client, masters)).items()):
        plan.nowhere_else.add(name)
        more = f" and {len(topics) - RESTART_NAMED_MAX} more" if len(topics) > RESTART_NAMED_MAX else ""
        plan.warnings.append(
            f"no other broker takes {', '.join(topics[:RESTART_NAMED_MAX])}{more}: {name} keeps its write permission, "
            "and sends to it wait while it is away, and fail if that is too long"
        )
    return plan


async def _topics_nowhere_else(client: Client, masters: Iterable[Broker]) -> dict[str, list[str]]:
    """By broker name the topics that programs may send to there and at no other of the masters."""
    from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, Perm, is_system_topic

    takers: dict[str, list[str]] = {}
    for master in masters:
        for topic, config in (await client.admin.topic_configs(master.address)).items():
            is_own = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
            if not is_own and not is_system_topic(topic, cluster=master.cluster, broker=master.name):
                takers.setdefault(topic, []).extend([master.name] if config.perm & Perm.WRITE else [])
    alone: dict[str, list[str]] = {}
    for topic, names in sorted(takers.items()):
        if len(names) == 1:
            alone.setdefault(names[0], []).append(topic)
    return alone


class RestartWork:
    """The sequence, and what it takes to carry it out."""

    def __init__(
        self,
        client: Client,
        mark: RestartMark,
        members: Sequence[ClusterMember],
        order: OneByOne,
        command: str | None,
        start_ms: int,
    ) -> None:
        self.client = client
        self.mark = mark
        self.order = order
        self._members = members
        self._watch = ClusterWatch(client, members)
        self._command = command
        self._start_ms = start_ms
        self.seen: dict[str, Seen] = {}
        self.gives_back = False
        """Write permission is given back, which nothing may interrupt."""
        self.is_interrupted = False
        """Somebody wanted to, and it ends after that."""

    async def give_back_left(self) -> None:
        """What a command had taken that was killed; not where nobody answers, as clients would go there."""
        if not self.mark.left:
            return
        self.seen = await self._watch.look()
        for name in self.mark.left:
            leads = [self.seen[one.address] for one in self._members if one.name == name]
            if any(one.is_master and one.started_ms is not None for one in leads):
                note(f"{name} has its write permission back, which a command had taken that was killed")
                await self._give_back(name)

    async def go_on(self) -> None:
        """Look at the cluster, and do what is due now."""
        self.seen = await self._watch.look()
        await self.do(self.order.step(monotonic_ms(), self.seen))

    async def end(self, why: str) -> None:
        """End early; permission that was taken is given back, or it is said where it could not be."""
        from orbitmq.errors import OrbitError

        self.gives_back = True
        with contextlib.suppress(Exception):  # what was seen before counts then
            self.seen = await self._watch.look()
        failures = [self.order.failure, why] if self.order.failure else []
        try:
            await self.do(self.order.interrupted(self.seen, why))
        except (OrbitError, OSError) as error:
            failures = [self.order.failure, str(error)]
        if failures:
            self.order.failure = "; ".join(failures)

    async def do(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            _tell(effect)
            member = effect.member
            match effect.doing:
                case Doing.WIPE if member is not None:
                    await self.mark.note_taken(member.name)
                    await self.client.admin.wipe_write_permission(member.name)
                case Doing.GIVE_BACK if member is not None:
                    await self._give_back(member.name)
                case Doing.SWITCH if member is not None:
                    await self._switch(member)
                case Doing.RESTART if member is not None and self._command is not None:
                    failure = await _run(command_for(self._command, member), self._start_ms)
                    self.seen = await self._watch.look()
                    await self.do(self.order.restarted(monotonic_ms(), self.seen, failure))
                case _:
                    pass

    async def _switch(self, leader: ClusterMember) -> None:
        from orbitmq.errors import ClientError
        from orbitmq.protocol.remoting.replication_bodies import DemoteRequest

        try:
            await self.client.admin.demote_master(leader.address, DemoteRequest(hands_over=True))
        except ClientError as error:  # then it hands over when it stops
            note(f"{leader} leads on: {error}")

    async def _give_back(self, name: str) -> None:
        import asyncio

        ends, self.gives_back = self.gives_back, True
        try:
            await self.client.admin.add_write_permission(name)
        finally:
            self.gives_back = ends
        await self.mark.note_given_back()
        if self.is_interrupted and not ends:
            raise asyncio.CancelledError


async def _carry_out(work: RestartWork) -> int:
    """The exit code."""
    import asyncio
    import signal

    from orbitmq.errors import OrbitError

    loop, own, order = asyncio.get_running_loop(), asyncio.current_task(), work.order
    assert own is not None

    def interrupt() -> None:
        if work.gives_back:
            note("write permission is given back first")
            work.is_interrupted = True
        else:
            own.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, interrupt)
    keeping = asyncio.create_task(work.mark.keep())
    keeping.add_done_callback(lambda one: None if one.cancelled() else interrupt())
    try:
        await work.give_back_left()
        while not order.is_over:
            await work.go_on()
            if not order.is_over:
                await asyncio.sleep(RESTART_LOOK_S)
    except asyncio.CancelledError:  # of Ctrl-C or SIGTERM, or of another command that took the mark
        failure = keeping.exception() if keeping.done() else None
        await work.end("interrupted" if failure is None else str(failure))
        code = ExitCode.INTERRUPTED if failure is None else ExitCode.FAILED
    except Exception as error:
        await work.end(str(error))
        if not isinstance(error, OrbitError | OSError):
            raise
        code = ExitCode.FAILED
    else:
        code = ExitCode.FAILED if order.failure else ExitCode.OK
    finally:
        work.gives_back = True
        keeping.cancel()
        await work.mark.leave()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    if chosen_output() is Output.JSON:
        print_line({"restarted": [one.address for one in order.done], "failure": order.failure or None})
    if order.failure:
        note(f"error: {order.failure}")
    else:
        note(f"restarted: {', '.join(map(str, order.done)) or 'nobody'}")
    return code


async def _run(line: str, limit_ms: int) -> str:
    """Run a command; why it failed, or nothing. It has a session of its own and comes to its end: Ctrl-C leaves no half restart."""
    import asyncio
    import os
    import signal

    process = await asyncio.create_subprocess_shell(
        line, stdin=asyncio.subprocess.DEVNULL, stdout=2, start_new_session=True
    )
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait({ended}, timeout=limit_ms / 1000)
    except asyncio.CancelledError:
        note(f"waiting until `{line}` has ended")
        await asyncio.wait({ended}, timeout=limit_ms / 1000)
        raise
    if not ended.done():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await ended
        return f"`{line}` had not ended after {limit_ms // 1000} s"
    return f"`{line}` ended with {ended.result()}" if ended.result() else ""


def command_for(template: str, member: ClusterMember) -> str:
    """The command that restarts this broker. `ConfigurationError` for names that a shell would not take as they are."""
    from orbitmq.client.addresses import split_address
    from orbitmq.errors import ConfigurationError

    values = {"broker": member.name, "address": member.address, "host": split_address(member.address)[0]}

    def fill(found: re.Match[str]) -> str:
        value = values[found[1]]
        if _PLAIN.fullmatch(value) is None:
            raise ConfigurationError(
                f"--restart-command: the {found[1]} {value!r} has characters that a shell does not take as they are",
                remedy=f"leave out {found[0]}, and restart this broker by hand",
            )
        return value

    return _PLACE.sub(fill, template)


def _tell(effect: Effect) -> None:
    if chosen_output() is Output.JSON:
        member = effect.member
        print_line(
            {
                "at_ms": _now_ms(),
                "broker": member and member.name,
                "address": member and member.address,
                "doing": effect.doing.value,
                "text": effect.text,
            }
        )
    elif effect.text:
        note(effect.text)


def _now_ms() -> int:
    from orbitmq.clock import SystemClock

    return SystemClock().now_ms()
