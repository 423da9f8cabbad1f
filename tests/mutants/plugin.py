"""A pytest plugin (`-p tests.mutants.plugin`): plants the mutant named in the environment.

Writes the first test that failed to the file that `FAILED` names.
"""

import os
from pathlib import Path

import pytest

from tests.mutants.mutant import FAILED, chosen, plant
from tests.mutants.suite import MUTANTS

for _each in MUTANTS:
    if _each.name == chosen():
        plant(_each)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        Path(os.environ[FAILED]).write_text(report.nodeid, encoding="utf-8")
