import pytest
from prometheus_client import CollectorRegistry

from pileus.telemetry.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())
