"""The order-timeout story at a pair of brokers while one of them fails, and then the other.

Orders are placed, each with a message that comes when its time is up; some are paid and their messages recalled; a recurring
message comes every second. Meanwhile the slave is killed and comes back; then the master is killed and the slave takes over, by its
configuration; then a new slave copies it; then this master is killed too, the slave is made master by a command while it runs, and the
old master comes back as its slave. Says after each fault how long nothing could be written or read, and what was lost or repeated.
Exits with 1 when a promise was broken.

    python -m examples.order_timeout_pair.story [--seconds 10] [--orders-per-second 100]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

import orbitmq
from examples.order_timeout_pair.account import Account, Fault
from examples.order_timeout_pair.brokers import Brokers
from examples.order_timeout_pair.report import print_faults, print_orders, print_verdict
from examples.order_timeout_pair.shop import ALLOWED_S, CLIENT, Shop, now_ms

PATIENCE_S = 60
"""For what has to happen by itself: a slave that catches up, the last time-outs."""
QUIET_S = 1.5
"""How long nothing more may come before the account is closed: what is delivered twice follows soon."""


class Story:
    def __init__(self, brokers: Brokers, shop: Shop, console: Console, seconds: float) -> None:
        self._brokers = brokers
        self._shop = shop
        self._account = shop.account
        self._console = console
        self._seconds = seconds
        self._began = time.monotonic()

    def _tell(self, what: str) -> None:
        self._console.print(f"{time.monotonic() - self._began:5.1f} s  {what}")

    async def play(self) -> None:
        brokers = self._brokers
        await self._until_copied("orders are placed, and answered when both brokers have them")
        await asyncio.sleep(self._seconds)

        self._fault("slave killed")
        await brokers.kill("two")
        await asyncio.sleep(self._seconds / 2)
        await brokers.start_slave("two", of="one")
        await self._until_copied("the slave is back and has caught up")
        await asyncio.sleep(self._seconds / 2)

        self._fault("master killed")
        await brokers.kill("one")
        await brokers.stop("two")
        await brokers.start_master("two")
        self._tell("the slave was started again as the master")
        await asyncio.sleep(self._seconds)

        self._fault("new slave")
        await brokers.forget("one")
        await brokers.start_slave("one", of="two")
        await self._until_copied("the new slave has caught up")
        await asyncio.sleep(self._seconds / 2)

        self._fault("killed again")
        await brokers.kill("two")
        await brokers.promote("one")
        self._tell("the slave was made the master while it ran: orbitmq replica promote")
        await asyncio.sleep(self._seconds / 2)

        self._fault("old master")
        await brokers.forget("two")
        await brokers.readmit(1, at="one")
        await brokers.start_slave("two", of="one")
        await self._until_copied("the old master, emptied, is a slave that has caught up")
        await asyncio.sleep(self._seconds / 2)

    def _fault(self, what: str) -> None:
        self._account.faults.append(Fault(what, now_ms()))
        self._tell(what)

    async def _until_copied(self, what: str) -> None:
        asked_ms = now_ms()
        if not await until(lambda: self._shop.copied_ms > asked_ms):
            raise SystemExit(f"no order was answered SEND_OK within {PATIENCE_S} s, waiting for: {what}")
        self._tell(what)

    async def end(self, placing: asyncio.Task[None]) -> None:
        """The last orders are answered and their time is up."""
        account = self._account
        account.ends_ms = now_ms()
        self._shop.close()
        async with asyncio.timeout(PATIENCE_S):
            await placing
        self._tell("no more orders; the last time-outs are awaited")
        await asyncio.sleep(ALLOWED_S)
        await until(lambda: not any(order.is_missing for order in account.orders.values()))
        await asyncio.sleep(QUIET_S)


async def until(condition: Callable[[], bool]) -> bool:
    """Whether it came true in time."""
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > ends:
            return False
        await asyncio.sleep(0.05)
    return True


async def play(directory: Path, seconds: float, orders_per_s: float, console: Console) -> Account:
    account = Account()
    async with Brokers(directory) as brokers:
        await brokers.start_master("one")
        await brokers.start_slave("two", of="one")
        async with orbitmq.connect(brokers.name_server, options=CLIENT) as mq:
            shop = Shop(mq, account, orders_per_s)
            await shop.prepare()
            story = Story(brokers, shop, console, seconds)
            async with asyncio.TaskGroup() as programs:
                placing = programs.create_task(shop.place_orders())
                receiving = [programs.create_task(shop.receive_orders()), programs.create_task(shop.receive_ticks())]
                await story.play()
                await story.end(placing)
                for task in receiving:
                    task.cancel()
    return account


def report(account: Account, console: Console) -> bool:
    """Print what followed each fault and whether all promises were kept."""
    print_faults(account, console, title="Each fault, up to the next: seconds without writing and reading, and orders")
    print_orders(account, console)
    if gone := account.missing_without_copy():
        console.print(f"{gone:,} orders are gone that were answered without a copy: of these nothing was promised")
    kept = "every acknowledged order came, no recalled one did, nothing early"
    return print_verdict(account.broken(), console, kept=kept)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="how long each part of the story goes on")
    parser.add_argument("--orders-per-second", type=float, default=100)
    options = parser.parse_args(arguments)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="orbitmq-pair-", ignore_cleanup_errors=True) as directory:
        account = asyncio.run(play(Path(directory), options.seconds, options.orders_per_second, console))
    return 0 if report(account, console) else 1


if __name__ == "__main__":
    logging.getLogger("orbitmq").setLevel(logging.ERROR)  # that calls fail and are made again is the story
    sys.exit(main())
