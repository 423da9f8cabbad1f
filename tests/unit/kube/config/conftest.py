from pathlib import Path

import pytest

from tests.unit.kube.config.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)
