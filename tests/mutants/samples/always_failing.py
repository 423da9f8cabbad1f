def test_something() -> None:
    raise AssertionError
