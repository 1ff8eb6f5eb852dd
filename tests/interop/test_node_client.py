"""The Node client ali-ons from npm, as released."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rig.brokers import BrokerUnderTest
from rig.contract import ClientContract, DeadLetterContract
from rig.drivers import node_driver
from rig.scenario import NODE, Scenario
from rig.toolchain import node_modules

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def scenario(
    broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory, available: Callable[[Callable[[], object]], None]
) -> Scenario:
    available(node_modules)
    with node_driver(broker.name_server, tmp_path_factory.mktemp("node")) as driver:
        return Scenario("Node", broker, NODE).run(driver)


class TestNodeClient(ClientContract, DeadLetterContract):
    pass
