"""Results of pure functions are kept for a value itself, and not for one that equals it."""

from collections.abc import Mapping

from pileus_lab.openstack.by_identity import MOST, by_identity

Value = Mapping[str, int]


def test_a_value_is_computed_once_and_an_equal_one_by_itself() -> None:
    asked: list[Value] = []

    @by_identity
    def doubled(one: Value) -> int:
        asked.append(one)
        return one["size"] * 2

    first, equal = {"size": 1}, {"size": 1}
    assert [doubled(first), doubled(first), doubled(equal)] == [2, 2, 2]
    assert [id(one) for one in asked] == [id(first), id(equal)]


def test_values_that_are_dropped_are_not_taken_for_later_ones() -> None:
    """A new value often gets the memory of one that was dropped."""

    @by_identity
    def doubled(one: Value) -> int:
        return one["size"] * 2

    sizes = range(2 * MOST + 10)
    assert [doubled({"size": size}) for size in sizes] == [size * 2 for size in sizes]
