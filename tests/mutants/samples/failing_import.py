from tests.mutants.mutant import chosen

assert not chosen()


def test_something() -> None:
    pass
