"""Brokers and clusters for the tests of applications.

    from barnabas.testing import BrokerProcess

    with BrokerProcess() as broker:
        ...  # clients connect to broker.bootstrap

pytest finds the fixtures `barnabas_broker`, `barnabas_topic` and `barnabas_cluster` by itself
(`barnabas.testing.pytest_plugin`). docs/how-to/test-applications.md shows tests with each of them.

The first use of a name imports its module, because pytest imports this package in each run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.testing.broker_cluster import BrokerCluster
    from barnabas.testing.broker_process import BrokerProcess, BrokerProcessError
    from barnabas.testing.container import BarnabasContainer
    from barnabas.testing.file_faults import OPERATIONS as FILE_OPERATIONS

__all__ = ["FILE_OPERATIONS", "BarnabasContainer", "BrokerCluster", "BrokerProcess", "BrokerProcessError"]

_PLACES = {
    "BarnabasContainer": ("container", "BarnabasContainer"),
    "BrokerCluster": ("broker_cluster", "BrokerCluster"),
    "BrokerProcess": ("broker_process", "BrokerProcess"),
    "BrokerProcessError": ("broker_process", "BrokerProcessError"),
    "FILE_OPERATIONS": ("file_faults", "OPERATIONS"),
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - see above

    module, attribute = _PLACES[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
