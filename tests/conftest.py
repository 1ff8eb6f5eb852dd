"""Rules that hold for every test.

A test that cannot run says why (`pytest.skip`) and is counted. With ORBITMQ_REQUIRE_ALL=1, which continuous
integration sets, a skip is a failure: there everything has to run.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

REQUIRE_ALL = os.environ.get("ORBITMQ_REQUIRE_ALL") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"skipped although everything is required to run here: {reason}"
    return report
