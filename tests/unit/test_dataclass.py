"""Our dataclasses behave like those of the standard library."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from pileus.dataclass import dataclass
from pileus.dataclass import replace as own_replace

T = TypeVar("T")
BOTH = pytest.mark.parametrize("make", [dataclass, dataclasses.dataclass], ids=["own", "standard"])
"""What is tested holds for the standard library too."""


@dataclass(frozen=True, slots=True)
class Point:
    """In the module, so that it can be pickled."""

    x: int
    y: int = 0
    labels: dict[str, str] = field(default_factory=dict[str, str], hash=False)
    secret: str = field(default="", repr=False, compare=False)


def values(make: Callable[..., Any]) -> Any:
    @make(frozen=True, slots=True, order=True)
    class Value:
        """A value."""

        many: ClassVar[int] = 3
        name: str
        size: int = 1
        parts: tuple[str, ...] = field(default_factory=tuple[str, ...], kw_only=True)
        secret: str = field(default="", repr=False, compare=False, kw_only=True)

    return Value


@BOTH
def test_parameters_and_defaults(make: Callable[..., Any]) -> None:
    kind = values(make)

    assert kind("a") == kind("a", 1, parts=())
    assert (kind("a", 2).name, kind("a", size=2).size) == ("a", 2)
    with pytest.raises(TypeError, match="name"):
        kind()
    with pytest.raises(TypeError):
        kind("a", 1, ("x",))
    with pytest.raises(TypeError, match="other"):
        kind("a", other=1)


@BOTH
def test_equality_order_and_hash_by_the_compared_fields(make: Callable[..., Any]) -> None:
    kind = values(make)

    assert kind("a", secret="x") == kind("a", secret="y")
    assert hash(kind("a", secret="x")) == hash(kind("a", secret="y")) == hash(("a", 1, ()))
    assert kind("a") != kind("b")
    assert kind("a") != ("a", 1, ())
    assert sorted([kind("b"), kind("a", 2), kind("a")]) == [kind("a"), kind("a", 2), kind("b")]
    assert kind("a") <= kind("a") < kind("b") >= kind("a")
    with pytest.raises(TypeError):
        assert kind("a") < 1


@BOTH
def test_the_text_has_no_hidden_fields(make: Callable[..., Any]) -> None:
    text = repr(values(make)("a", secret="x"))

    assert text.endswith(".Value(name='a', size=1, parts=())")


@BOTH
def test_a_frozen_value_cannot_be_changed(make: Callable[..., Any]) -> None:
    value = values(make)("a")

    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        value.name = "b"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del value.name
    assert value.name == "a"


@BOTH
def test_fields_replace_and_patterns(make: Callable[..., Any]) -> None:
    kind = values(make)

    assert [one.name for one in fields(kind)] == ["name", "size", "parts", "secret"]
    assert replace(kind("a", parts=("p",)), size=4) == kind("a", 4, parts=("p",))
    match kind("a", 7):
        case kind(name, size):
            assert (name, size) == ("a", 7)
        case _:
            pytest.fail("no match")


@BOTH
def test_methods_of_the_class_are_kept(make: Callable[..., Any]) -> None:
    @make(frozen=True)
    class Own:
        name: str

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return str(getattr(other, "name", "")).lower() == self.name.lower()

        def __hash__(self) -> int:
            return 42

    assert (repr(Own("a")), Own("A") == Own("a"), hash(Own("a"))) == ("mine", True, 42)


@BOTH
def test_mutable_ones_have_no_hash_and_those_without_equality_their_identity(
    make: Callable[..., Any],
) -> None:
    @make(slots=True)
    class Mutable:
        items: list[int] = field(default_factory=list[int])
        _count: int = field(default=5, init=False)
        _names: set[str] = field(default_factory=set[str], init=False)

        def __post_init__(self) -> None:
            self.items.append(self._count)

    @make(eq=False)
    class Alone:
        name: str = ""

    one, other = Mutable(), Mutable([1])
    one.items.append(6)
    assert (one.items, other.items, one._names) == ([5, 6], [1, 5], set())
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    alone = Alone()
    assert len({alone, alone, Alone()}) == 2


@BOTH
def test_inheritance(make: Callable[..., Any]) -> None:
    @make(frozen=True, slots=True)
    class Base(Generic[T]):
        first: T
        second: int = 2

        def both(self) -> tuple[T, int]:
            return self.first, self.second

    @make(frozen=True, slots=True)
    class Derived(Base[str]):
        third: int = 3

    assert Base("a").both() == Derived("a").both() == ("a", 2)
    assert Derived("a", 5, 6).third == 6
    assert Base("a") != Derived("a")


@BOTH
def test_a_value_that_contains_itself_has_a_text(make: Callable[..., Any]) -> None:
    @make
    class Loop:
        inner: object = None

    loop = Loop()
    loop.inner = loop

    assert repr(loop).endswith("Loop(inner=...)")


def test_copies_and_pickles() -> None:
    point = Point(1, labels={"a": "b"}, secret="s")

    for same in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert same == point
        assert same.secret == "s"


def test_without_a_docstring_the_name_is_one() -> None:
    @dataclass(frozen=True)
    class Bare:
        name: str = ""

    assert (Bare.__doc__, Point.__doc__) == ("Bare", "In the module, so that it can be pickled.")


REPLACES = pytest.mark.parametrize("change", [replace, own_replace], ids=["standard", "own"])


@REPLACES
@BOTH
def test_replace_changes_these_fields_only(
    make: Callable[..., Any], change: Callable[..., Any]
) -> None:
    kind = values(make)
    before = kind("a", 2, parts=("x",), secret="s")

    after = change(before, size=3)

    assert after == kind("a", 3, parts=("x",))
    assert (after.secret, before.size, type(after)) == ("s", 2, kind)
    with pytest.raises(FrozenInstanceError):
        after.size = 4
    with pytest.raises(TypeError, match="other"):
        change(before, other=1)
    assert kind("b").size == 1  # new instances, too
    with pytest.raises(FrozenInstanceError):
        kind("b").size = 4


@REPLACES
def test_replace_runs_the_check_of_the_class(change: Callable[..., Any]) -> None:
    @dataclass(frozen=True, slots=True)
    class Checked:
        size: int

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("negative")

    with pytest.raises(ValueError, match="negative"):
        change(Checked(1), size=-1)


@REPLACES
def test_replace_keeps_a_constructor_of_the_class_and_subclasses(
    change: Callable[..., Any],
) -> None:
    @dataclass(frozen=True, slots=True)
    class Base:
        size: int
        name: str = ""

    class Derived(Base):
        """With a dict of its own."""

    @dataclass(frozen=True, slots=True)
    class Doubled:
        size: int

        def __init__(self, size: int) -> None:
            object.__setattr__(self, "size", 2 * size)

    assert change(Base(1, "a"), size=2) == Base(2, "a")
    derived = Derived(3, "b")
    assert (type(derived), derived.size, derived.name) == (Derived, 3, "b")
    assert type(change(derived, size=4)) is Derived
    assert change(Doubled(1), size=3).size == 6
