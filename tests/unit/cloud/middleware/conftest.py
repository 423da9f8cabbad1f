import pytest

from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(MetricRegistry())
