"""Workers: jobs in order, results and errors back on the owner's thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import pytest
from tests.worlds.little_store import SteppedWorker

from orbitmq.errors import JobRefusedError
from orbitmq.store import worker as worker_module
from orbitmq.store.worker import InlineWorker, Lanes, ThreadWorker


def test_jobs_run_in_order_elsewhere_and_their_results_come_back_here() -> None:
    calls: queue.Queue[Callable[[], None]] = queue.Queue()
    worker = ThreadWorker("test", calls.put)
    threads: list[threading.Thread] = []
    on_done: list[object] = []
    for number in range(5):
        worker.submit(lambda number=number: (threads.append(threading.current_thread()), number)[1], on_done.append)
    worker.close()
    assert on_done == [], "nothing is told on the worker's thread"
    while not calls.empty():
        calls.get()()
    assert on_done == [0, 1, 2, 3, 4]
    assert {thread.name for thread in threads} == {"test"}
    worker.close()


def test_an_error_is_a_result() -> None:
    worker = ThreadWorker("test", lambda call: call())
    on_done: list[object] = []
    worker.submit(lambda: 1 // 0, on_done.append)
    worker.submit(lambda: "next", on_done.append)
    worker.close()
    assert isinstance(on_done[0], ZeroDivisionError)
    assert on_done[1] == "next"


def test_a_worker_can_be_used_again_after_closing() -> None:
    worker = ThreadWorker("test", lambda call: call())
    on_done: list[object] = []
    for number in range(2):
        worker.submit(lambda number=number: number, on_done.append)
        worker.close()
    assert on_done == [0, 1]


def test_a_job_without_a_place_ends_as_one_that_failed_and_submit_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "WORKER_JOBS_MAX", 2)
    hold = threading.Event()
    calls: queue.Queue[Callable[[], None]] = queue.Queue()
    worker = ThreadWorker("test", calls.put)
    on_done: list[object] = []
    for _ in range(6):
        worker.submit(hold.wait, on_done.append)
    assert on_done == [], "whoever submits has to finish first"
    while not calls.empty():
        calls.get()()
    assert len(on_done) in (3, 4)
    assert all(isinstance(result, JobRefusedError) for result in on_done)
    assert "test: 2 jobs wait already (look at the disk)" in str(on_done[0])
    hold.set()
    worker.close()


def test_a_thread_that_cannot_be_started_is_told_too_and_tried_with_the_next_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = ThreadWorker("test", lambda call: call())
    on_done: list[object] = []

    def fails(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        worker.submit(lambda: "never", on_done.append)
    assert isinstance(on_done[0], JobRefusedError)
    assert "can't start new thread" in str(on_done[0])
    worker.submit(lambda: "now", on_done.append)
    worker.close()
    assert on_done[1] == "now"


def test_every_lane_has_a_thread_of_its_own() -> None:
    hold, calls = threading.Event(), queue.Queue[Callable[[], None]]()
    lanes = Lanes.threads("test", calls.put)
    on_done: list[object] = []
    for _ in range(5):
        lanes.reads.submit(hold.wait, lambda result: None)
    for lane in (lanes.sync, lanes.upkeep, lanes.inner):
        lane.submit(lambda: threading.current_thread().name, on_done.append)
        calls.get(timeout=10)()
    assert on_done == ["test-sync", "test-upkeep", "test-inner"]
    hold.set()
    lanes.close()


@pytest.mark.parametrize("make", [InlineWorker, SteppedWorker])
def test_workers_for_tests_keep_the_contract(make: Callable[[], InlineWorker | SteppedWorker]) -> None:
    worker = make()
    on_done: list[object] = []
    worker.submit(lambda: "done", on_done.append)
    worker.submit(lambda: 1 // 0, on_done.append)
    worker.close()
    assert on_done[0] == "done"
    assert isinstance(on_done[1], ZeroDivisionError)
