"""Every example runs as a newcomer runs it, and prints what it is meant to show."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from server_process import ServedProcess

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

PRINTS = {
    "hello_delay": r"sent \w{32}: SEND_OK\nreceived after \d+\.\d+ s: This is a delayed message\.\n",
    "unpaid_order": (
        r"20 orders placed, 10 paid; waiting for the time-outs\n"
        r"paid +10\ncancelled +10\nopen +0\n"
    ),
    "recalled_timeout": (
        r"8 paid, 8 cancellations recalled\n4 wait for their time, order-8 the longest\n"
        r"cancelled: order-10 order-11 order-9\norder-9 is paid too late: already_delivered\ncancelled: order-8\n"
    ),
    "every_second": r"heartbeat: created\n(\d\. heartbeat: I am here\.\n){3}no more runs\n",
    "ordered_events": (
        r"A created paid shipped delivered\nB created paid shipped delivered\nC created paid shipped delivered\n"
    ),
    "cache_invalidation": r"(web-[12] has coffee left\n){2}",
    "ask_and_answer": r"tea: 3\.20\ncoffee: 4\.10\ngold: nobody answered\n",
    "nightly_import": (
        r"broke off with 12 rows stored\nrun again: 20 rows stored\nthe next day: 21 rows stored\nan old job is refused\n"
    ),
    "chosen_orders": r"large-orders: bike, boat\nsmall-in-europe: kite, lamp\n",
    "slow_jobs": r"30 jobs done by [23] workers, out of one queue\n",
    "urgent_first": (r"site is down\ndata is lost\nno invoice\npayments fail\nslow search\na typo\na new logo\n"),
    "paid_orders": (
        r"tea: booked and announced\ncoffee: not booked, not announced\ngold: booked, and the program died\n"
        r"asked about gold\nannounced: gold, tea\n"
    ),
    "redrive": (
        r"3 dead letters\n2 sent again, 1 passed over\n(booked: card (12|30)\n){2}0 sent again the second time\n"
    ),
    "threaded_worker": r"40 jobs sent to \d+ queues\ndone +40\ntried again later +4\n",
}
"""What each prints, as a pattern."""

ELSEWHERE = {
    "opentelemetry_hooks": "test_opentelemetry_example.py",
    "replay": "test_replay_example.py",
    "spark": "../spark/test_examples.py",
    "order_timeout": "test_demo.py",
    "order_timeout_group": "test_demo.py",
    "order_timeout_pair": "test_demo.py",
    "order_timeout_spark": "../spark/test_spark_demo.py",
    "orders_on_a_cluster": "../spark/test_standalone.py",
    "test_order_timeout": "test_embedded_example.py",
}
"""Those that take arguments of their own or longer, or are projects."""


@pytest.fixture(scope="module")
def quick_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    """With levels of a second, and checks after one: the examples do not say how long they mean."""
    settings = {"messageDelayLevel": " ".join(["1s"] * 18), "transactionTimeOut": "1000"}
    process = ServedProcess(tmp_path_factory.mktemp("examples"), settings=settings)
    yield process
    process.stop()


def test_every_example_is_run() -> None:
    found = {path.stem for path in EXAMPLES.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert found - {"__init__"} == set(PRINTS) | set(ELSEWHERE)
    assert all((Path(__file__).parent / name).exists() for name in ELSEWHERE.values())
    listed = re.findall(
        r"^\| \[(\w+)(?:\.py)?\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert set(listed) == set(PRINTS) | set(ELSEWHERE)


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_shows(quick_server: ServedProcess, name: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", f"127.0.0.1:{quick_server.name_port}"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(PRINTS[name], done.stdout), done.stdout
