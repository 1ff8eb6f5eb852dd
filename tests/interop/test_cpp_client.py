"""The C++ client library inside the PyPI wheel `rocketmq`, as released, in an environment of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rig.brokers import BrokerUnderTest
from rig.contract import ClientContract, OnewayContract, UnknownTopicContract
from rig.drivers import cpp_driver
from rig.scenario import CPP, Scenario
from rig.toolchain import cpp_python


@pytest.fixture(scope="module")
def scenario(
    broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory, available: Callable[[Callable[[], object]], None]
) -> Scenario:
    available(cpp_python)
    with cpp_driver(broker.name_server, tmp_path_factory.mktemp("cpp")) as driver:
        return Scenario("Cpp", broker, CPP).run(driver)


class TestCppClient(ClientContract, OnewayContract, UnknownTopicContract):
    pass
