"""Workers: jobs in order, results and errors back on the owner's thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest

from orbitmq.store import worker as worker_module
from orbitmq.store.worker import InlineWorker, ThreadWorker
from orbitmq.testing.little_store import SteppedWorker


def test_jobs_run_in_order_elsewhere_and_their_results_come_back_here() -> None:
    calls: queue.Queue[Callable[[], None]] = queue.Queue()
    worker = ThreadWorker("test", calls.put)
    threads: list[threading.Thread] = []
    told: list[object] = []
    for number in range(5):
        worker.submit(lambda number=number: (threads.append(threading.current_thread()), number)[1], told.append)
    worker.close()
    assert told == [], "nothing is told on the worker's thread"
    while not calls.empty():
        calls.get()()
    assert told == [0, 1, 2, 3, 4]
    assert {thread.name for thread in threads} == {"test"}
    worker.close()


def test_an_error_is_a_result() -> None:
    worker = ThreadWorker("test", lambda call: call())
    told: list[object] = []
    worker.submit(lambda: 1 // 0, told.append)
    worker.submit(lambda: "next", told.append)
    worker.close()
    assert isinstance(told[0], ZeroDivisionError)
    assert told[1] == "next"


def test_a_worker_can_be_used_again_after_closing() -> None:
    worker = ThreadWorker("test", lambda call: call())
    told: list[object] = []
    for number in range(2):
        worker.submit(lambda number=number: number, told.append)
        worker.close()
    assert told == [0, 1]


def test_jobs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "JOBS_MAX", 2)
    hold = threading.Event()
    worker = ThreadWorker("test", lambda call: call())
    worker.submit(hold.wait, lambda result: None)
    refused = 0
    for _ in range(5):
        try:
            worker.submit(hold.wait, lambda result: None)
        except queue.Full:
            refused += 1
    assert refused >= 2
    hold.set()
    worker.close()


@pytest.mark.parametrize("make", [InlineWorker, SteppedWorker])
def test_workers_for_tests_keep_the_contract(make: Callable[[], InlineWorker | SteppedWorker]) -> None:
    worker = make()
    told: list[object] = []
    worker.submit(lambda: "done", told.append)
    worker.submit(lambda: 1 // 0, told.append)
    worker.close()
    assert told[0] == "done"
    assert isinstance(told[1], ZeroDivisionError)
