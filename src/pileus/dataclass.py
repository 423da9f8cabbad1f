"""`dataclass`, like that of the standard library, for programs that have hundreds of them.

The standard library compiles six functions for each frozen class when its module is imported, which
takes half of the start of the manager. Here `__init__` is compiled when the first instance is
created, and the other methods are not compiled at all. `dataclasses.field`, `replace`, `fields` and
patterns of `match` work as usual.

`replace` of this module is like that of `dataclasses` and takes a tenth of its time: passes replace
frozen values all the time.
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeAlias, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")

_Fields = tuple[dataclasses.Field[Any], ...]
_Class: TypeAlias = Any
"""A class to which methods are added: not a type that a checker can know."""
_ORDERS = ("__lt__", "__le__", "__gt__", "__ge__")
_set = object.__setattr__


@overload
@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *,
    eq: bool = True,
    order: bool = False,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> Callable[[type[T]], type[T]]: ...
def dataclass(
    cls: type[T] | None = None,
    /,
    *,
    eq: bool = True,
    order: bool = False,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> type[T] | Callable[[type[T]], type[T]]:
    """Add `__init__`, `__repr__`, comparisons and `__hash__` by the annotations of the class."""

    def decorate(plain: type[T]) -> type[T]:
        if plain.__doc__ is None:
            plain.__doc__ = plain.__name__  # otherwise its signature is derived, which is slow
        collect = dataclasses.dataclass(
            init=False, repr=False, eq=False, kw_only=kw_only, slots=slots
        )
        made = collect(plain)
        found = dataclasses.fields(cast("Any", made))
        if frozen and "__init__" not in made.__dict__:
            _FILLED.add(made)
        _add(made, "__init__", _deferred_init(made, found, frozen))
        _add(made, "__repr__", _repr)
        if eq:
            _add_comparisons(made, found, order=order, frozen=frozen)
        if frozen:
            _freeze(made)
        return made

    return decorate if cls is None else decorate(cls)


def _add(cls: _Class, name: str, function: object) -> None:
    """Add a method, unless the class defines it itself."""
    if name not in cls.__dict__:
        setattr(cls, name, function)


def replace(value: T, /, **changes: object) -> T:
    """Returns a copy of an instance of a dataclass with these fields changed.

    Raises TypeError for a field that the class does not have.
    """
    cls = value.__class__
    copy = _COPIES.get(cls)
    if copy is None:
        copy = _COPIES[cls] = _compiled_copy(cls) or cast("_Copy", dataclasses.replace)
    return copy(value, **changes)


_FILLED: set[type] = set()
"""The frozen classes whose `__init__` is from here."""
_Copy = Callable[..., Any]
_COPIES: dict[type, _Copy] = {}
"""By class: the function that copies an instance with changes."""


def _compiled_copy(cls: _Class) -> _Copy | None:
    """Returns None if an instance is more than the values of its fields."""
    if cls not in _FILLED or hasattr(cls, "__post_init__"):
        return None
    found = _fields_of(cls)
    draft = _draft_of(cls, found)
    if draft is None or not all(one.init for one in found):
        return None
    cls.__init__ = _compiled_init(cls, found, frozen=True, draft=draft)
    known = frozenset(one.name for one in found)
    names = {"_new": object.__new__, "_draft": draft, "_cls": cls, "_known": known}
    copied = [f" new.{one.name} = value.{one.name}" for one in found]
    lines = [
        "def copy(value, /, **changes):",
        " new = _new(_draft)",
        *copied,
        " for name in changes:",
        "  if name not in _known: raise TypeError(f'{_cls.__name__} has no field {name!r}')",
        "  setattr(new, name, changes[name])",
        " new.__class__ = _cls",
        " return new",
    ]
    exec("\n".join(lines), names)  # noqa: S102 -- as `__init__`
    return cast("_Copy", names["copy"])


def _draft_of(cls: _Class, found: _Fields) -> type | None:
    """Returns a class with the same slots that is not frozen; None if there cannot be one.

    A new instance is filled as an instance of this class, and then gets its own: plain assignments
    take a fifth of the time of `object.__setattr__`.
    """
    names = tuple(one.name for one in found)
    if cls.__bases__ != (object,) or cls.__dict__.get("__slots__") != names:
        return None
    return type(cls.__name__, (), {"__slots__": names})


def _deferred_init(cls: _Class, found: _Fields, frozen: bool) -> Callable[..., None]:  # noqa: FBT001 -- private
    def __init__(self: object, *given: object, **named: object) -> None:  # noqa: N807 -- the method
        init = _compiled_init(cls, found, frozen)
        cls.__init__ = init
        init(self, *given, **named)

    return __init__


def _compiled_init(
    cls: _Class,
    found: _Fields,
    frozen: bool,  # noqa: FBT001 -- private
    draft: type | None = None,
) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": _set, "_absent": object(), "_cls": cls, "_draft": draft}
    given, named = ["self"], list[str]()
    written: dict[str, str] = {}
    for one in found:
        parameter, value = _parameter(one, names)
        if one.init:
            (named if one.kw_only else given).append(parameter)
        if value:
            written[one.name] = value
    body = _assignments(written, frozen=frozen)
    if draft is not None:  # a subclass has other slots
        quickly = ["_set(self, '__class__', _draft)", *_assignments(written, frozen=False)]
        quickly = [f" {each}" for each in (*quickly, "self.__class__ = _cls")]
        body = ["if self.__class__ is _cls:", *quickly, "else:", *(f" {each}" for each in body)]
    body = [f" {each}" for each in body]
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    signature = ", ".join([*given, *(["*", *named] if named else [])])
    exec("\n".join([f"def __init__({signature}):", *body]), names)  # noqa: S102 -- as the standard library does
    init = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _assignments(written: dict[str, str], *, frozen: bool) -> list[str]:
    if not frozen:
        return ["pass", *(f"self.{name} = {value}" for name, value in written.items())]
    return ["pass", *(f"_set(self, {name!r}, {value})" for name, value in written.items())]


def _parameter(one: dataclasses.Field[Any], names: dict[str, Any]) -> tuple[str, str]:
    """Returns the parameter of a field, and the expression of its value; "": it gets none."""
    name = one.name
    if one.default_factory is not dataclasses.MISSING:
        names[f"_new_{name}"] = one.default_factory
        made = f"_new_{name}()"
        return f"{name}=_absent", f"{made} if {name} is _absent else {name}" if one.init else made
    if one.default is dataclasses.MISSING:
        return name, name if one.init else ""
    names[f"_default_{name}"] = one.default
    return f"{name}=_default_{name}", name if one.init else f"_default_{name}"


@recursive_repr()
def _repr(self: object) -> str:
    shown = [one.name for one in _fields_of(self) if one.repr]
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _values(names: list[str]) -> Callable[[object], tuple[object, ...]]:
    """Returns a function that returns the values of these fields."""
    if not names:
        return lambda _: ()
    if len(names) == 1:
        only = attrgetter(names[0])
        return lambda each: (only(each),)
    return attrgetter(*names)


def _add_comparisons(cls: _Class, found: _Fields, *, order: bool, frozen: bool) -> None:
    values = _values([one.name for one in found if one.compare])
    _add(cls, "__eq__", _equality(values))
    for name in _ORDERS if order else ():
        _add(cls, name, _comparison(values, name))
    if "__hash__" in cls.__dict__ and cls.__dict__["__hash__"] is not None:
        return  # its own; None is what Python adds to a class with its own __eq__
    if not frozen:
        cls.__hash__ = None
        return
    hashed = _values([one.name for one in found if (one.compare if one.hash is None else one.hash)])

    def __hash__(self: object) -> int:  # noqa: N807 -- the method
        return hash(hashed(self))

    cls.__hash__ = __hash__


def _equality(
    values: Callable[[object], tuple[object, ...]],
) -> Callable[[object, object], object]:
    def __eq__(self: object, other: object) -> object:  # noqa: N807 -- the method
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return __eq__


def _comparison(
    values: Callable[[object], tuple[object, ...]], name: str
) -> Callable[[object, object], object]:
    compare = getattr(tuple[object, ...], name)

    def method(self: object, other: object) -> object:
        if other.__class__ is self.__class__:
            return compare(values(self), values(other))
        return NotImplemented

    method.__name__ = name
    return method


def _freeze(cls: _Class) -> None:
    cls.__setattr__, cls.__delattr__ = _refuse_set, _refuse_delete
    if "__slots__" in cls.__dict__:  # copies and pickles set slots one by one
        _add(cls, "__getstate__", _getstate)
        _add(cls, "__setstate__", _setstate)


def _refuse_set(self: object, name: str, value: object) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    _set(self, name, value)


def _refuse_delete(self: object, name: str) -> None:
    if _is_frozen(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_frozen(self: object, name: str) -> bool:
    """A class that inherits from a dataclass, and is none itself, may have other attributes."""
    is_dataclass = "__dataclass_fields__" in type(self).__dict__
    return is_dataclass or any(one.name == name for one in _fields_of(self))


def _getstate(self: object) -> list[object]:
    return [getattr(self, one.name) for one in _fields_of(self)]


def _setstate(self: object, state: list[object]) -> None:
    for one, value in zip(_fields_of(self), state, strict=True):
        _set(self, one.name, value)


def _fields_of(value: object) -> _Fields:
    return dataclasses.fields(cast("Any", value))
