import pytest

from tests.mutants.mutant import chosen


@pytest.fixture
def broken() -> None:
    assert not chosen()


@pytest.mark.usefixtures("broken")
def test_something() -> None:
    pass
