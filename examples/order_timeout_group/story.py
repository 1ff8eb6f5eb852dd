"""The order-timeout story at a replicated group of three while its leader fails, six times.

Orders are placed, each with a message that comes when its time is up; some are paid and their messages recalled; a recurring message
comes every second. Meanwhile the leader is killed, frozen and cut off from everybody, twice each; another member leads by itself, and
the former leader comes back and follows. Says after each fault for how long nothing could be written or read, and what was lost or
repeated. Exits with 1 when a promise was broken.

    python -m examples.order_timeout_group.story [--rounds 2] [--seconds 1.5] [--orders-per-second 50]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rich.console import Console

import orbitmq
from examples.order_timeout_group.members import MEMBERS, Members
from examples.order_timeout_pair.account import Account, Fault
from examples.order_timeout_pair.report import COUNTS, print_faults, print_orders, print_verdict
from examples.order_timeout_pair.shop import ALLOWED_S, Shop, now_ms

PATIENCE_S = 60
"""For what has to happen by itself: another leader, a member that catches up."""
LAST_S = 20
"""For the last time-outs."""
QUIET_S = 1.5
"""How long nothing more may come before the account is closed: what is delivered twice follows soon."""


class Story:
    def __init__(self, members: Members, shop: Shop, console: Console, seconds: float) -> None:
        self._members = members
        self._shop = shop
        self._account = shop.account
        self._console = console
        self._seconds = seconds
        self._began = time.monotonic()

    def _tell(self, what: str) -> None:
        self._console.print(f"{time.monotonic() - self._began:5.1f} s  {what}")

    async def play(self, rounds: int) -> None:
        members = self._members

        async def freeze(name: str) -> None:
            members.freeze(name)

        async def thaw(name: str) -> None:
            members.thaw(name)

        async def cut(name: str) -> None:
            members.network.cut(name)

        async def mend(name: str) -> None:
            members.network.mend(name)

        await self._until_answered("orders are placed, and answered when all members have them")
        await asyncio.sleep(self._seconds)
        for _ in range(rounds):
            await self._fail("killed", members.kill, members.start)
            await self._fail("frozen", freeze, thaw)
            await self._fail("cut off", cut, mend)

    async def _fail(
        self, what: str, harm: Callable[[str], Awaitable[None]], heal: Callable[[str], Awaitable[None]]
    ) -> None:
        """The leader fails; another one leads; it comes back, and all are in sync again."""
        leader: str = (await self._members.view())["leader"]
        self._account.faults.append(Fault(f"leader {what}", now_ms()))
        self._tell(f"{leader}, which leads, is {what}")
        await harm(leader)
        await self._until_other_leads(leader)
        await self._until_answered("orders are answered again")
        await asyncio.sleep(self._seconds)
        await heal(leader)
        await self.until_in_sync(f"{leader} is back, and in sync")
        await asyncio.sleep(self._seconds)

    async def _until_other_leads(self, leader: str) -> None:
        async def leads() -> str:
            found: str = (await self._members.view()).get("leader", "")
            return found if found != leader else ""

        self._tell(f"{await wait_for(leads, 'another leader')} leads")

    async def until_in_sync(self, what: str) -> None:
        async def are() -> str:
            view = await self._members.view()
            return view.get("leader", "") if set(view.get("in_sync", ())) == set(MEMBERS) else ""

        await wait_for(are, "all members in sync")
        self._tell(what)

    async def _until_answered(self, what: str) -> None:
        asked_ms = now_ms()

        async def is_answered() -> str:
            return what if self._shop.copied_ms > asked_ms else ""

        self._tell(await wait_for(is_answered, what))

    async def end(self, placing: asyncio.Task[None]) -> None:
        """The last orders are answered and their time is up."""
        account = self._account
        account.ends_ms = now_ms()
        self._shop.close()
        async with asyncio.timeout(PATIENCE_S):
            await placing
        self._tell("no more orders; the last time-outs are awaited")
        await asyncio.sleep(ALLOWED_S)

        async def all_came() -> str:
            return "" if any(order.is_missing for order in account.orders.values()) else "all"

        with contextlib.suppress(TimeoutError):  # then the account says which did not
            async with asyncio.timeout(LAST_S):
                await wait_for(all_came, "the last time-outs")
        await asyncio.sleep(QUIET_S)


async def wait_for(found: Callable[[], Awaitable[str]], what: str) -> str:
    """What it finds in the end."""
    ends = time.monotonic() + PATIENCE_S
    while not (text := await found()):
        if time.monotonic() > ends:
            raise SystemExit(f"not within {PATIENCE_S} s: {what}")
        await asyncio.sleep(0.05)
    return text


async def play(directory: Path, rounds: int, seconds: float, orders_per_s: float, console: Console) -> Account:
    account = Account()
    async with Members(directory) as members:
        await asyncio.gather(*map(members.start, MEMBERS))
        async with orbitmq.connect(members.name_server) as mq:
            shop = Shop(mq, account, orders_per_s)
            story = Story(members, shop, console, seconds)
            await story.until_in_sync("three members are in sync")
            await shop.prepare()
            async with asyncio.TaskGroup() as programs:
                placing = programs.create_task(shop.place_orders())
                receiving = [programs.create_task(shop.receive_orders()), programs.create_task(shop.receive_ticks())]
                await story.play(rounds)
                await story.end(placing)
                for task in receiving:
                    task.cancel()
    return account


def report(account: Account, console: Console) -> bool:
    """Print what followed each fault and whether all promises were kept."""
    counts = {heading: name for heading, name in COUNTS.items() if heading != "no copy"}  # is not answered here
    print_faults(account, console, title="Each fault: seconds without writing and reading, and orders", counts=counts)
    print_orders(account, console)
    kept = "every acknowledged order came, stored once; no recalled one; none early"
    return print_verdict([*account.broken(), *account.stored_twice()], console, kept=kept)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often the leader is killed, frozen and cut off")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long each part of the story goes on")
    parser.add_argument("--orders-per-second", type=float, default=50)
    parser.add_argument("--keep", type=Path, help="a new directory for stores and logs, which stay")
    options = parser.parse_args(arguments)
    console = Console()
    with contextlib.ExitStack() as ends:
        if options.keep is None:
            made = tempfile.TemporaryDirectory(prefix="orbitmq-group-", ignore_cleanup_errors=True)
            directory = Path(ends.enter_context(made))
        else:
            directory = options.keep
            directory.mkdir()
        account = asyncio.run(play(directory, options.rounds, options.seconds, options.orders_per_second, console))
    return 0 if report(account, console) else 1


if __name__ == "__main__":
    logging.getLogger("orbitmq").setLevel(logging.ERROR)  # that calls fail and are made again is the story
    sys.exit(main())
