"""Objects as the real server's Go structs would read and write them.

Each type of the tables becomes a msgspec Struct, so that unknown fields fall away, empty ones are
left out or written as Go would, and wrong types are found, all at C speed.
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import msgspec

from pileus_lab.apiserver.schema import scalar, table
from pileus_lab.apiserver.store import encode
from pileus_lab.apiserver.tree import Obj, without_nulls

_PLAIN: dict[str, Any] = {
    "string": str,
    "bool": bool,
    "int": int,
    "int32": int,
    "int64": int,
    "uint8": int,
    "time": scalar.Time,
    "microtime": scalar.MicroTime,
    "quantity": scalar.Quantity,
    "intorstring": int | str,
    "bytes": scalar.Base64,
    "any": Any,
}
_ZERO: dict[str, object] = {
    "string": "",
    "bool": False,
    "int": 0,
    "int32": 0,
    "int64": 0,
    "uint8": 0,
    "intorstring": 0,
    "bytes": "",
}
_PATH = re.compile(r" - at `\$\.?(.*)`$")
_EXPECTED = re.compile(r"Expected `[^`]*`, got `(\w+)`")
_JSON_NAMES = {"str": "string", "int": "number", "float": "number"}


class Unfit(ValueError):
    """The JSON does not fit the type; the text is what Go would say."""


def canonical(type_name: str, value: Obj) -> Obj:
    """Return the object as the server keeps it. Errors: `Unfit`."""
    try:
        read = msgspec.convert(_present(value), _struct(type_name), dec_hook=scalar.read)
    except msgspec.ValidationError as error:
        raise Unfit(_go_words(type_name, str(error))) from error
    return _written(read)


def known(type_name: str, value: Obj) -> Obj | None:
    """As `canonical`; None if some field is not in the tables, or of a wrong type."""
    try:
        strict = _struct(type_name, known_only=True)
        read = msgspec.convert(_present(value), strict, dec_hook=scalar.read)
    except msgspec.ValidationError:
        return None
    return _written(read)


def _present(value: Obj) -> object:
    """The value without its nulls; looked for in the text first, which is much quicker."""
    return without_nulls(value) if b"null" in encode(value) else value


def _written(read: msgspec.Struct) -> Obj:
    return cast("Obj", msgspec.to_builtins(read, enc_hook=scalar.write))


@cache
def _struct(type_name: str, *, known_only: bool = False) -> type[msgspec.Struct]:
    described = table.types()[type_name].fields.values()
    fields = [_member(field, known_only=known_only) for field in described]
    names = {python: json for python, (json, _) in fields}
    return msgspec.defstruct(
        type_name.replace(".", "_"),
        [(python, *rest) for python, (_, rest) in fields],
        rename=names,
        omit_defaults=True,
        forbid_unknown_fields=known_only,
        kw_only=True,
        gc=False,
    )


def _member(field: table.Field, *, known_only: bool) -> tuple[str, tuple[str, tuple[Any, Any]]]:
    annotation = _annotation(field.type, known_only=known_only)
    default = _default(field, known_only=known_only)
    if default is None or default.is_none:
        annotation |= None
    made = default.made if default else msgspec.field(default=None)
    return f"{field.name}_", (field.name, (annotation, made))


class _Default(msgspec.Struct):
    made: Any
    is_none: bool = False


def _default(field: table.Field, *, known_only: bool) -> _Default | None:
    """Return the field's zero value; a factory where Go writes even the zero."""
    omitted = bool(field.flags & {"omitempty", "omitzero"})
    if field.type.startswith("*") or field.type in {"time", "microtime", "quantity", "any"}:
        moment = field.type in {"time", "microtime"}  # structs, which Go's omitempty never omits
        return _nothing(omitted=omitted and (not moment or "omitzero" in field.flags))
    if field.is_list or field.is_map:
        if not omitted:
            return _nothing(omitted=False)
        return _Default(msgspec.field(default_factory=list if field.is_list else dict))
    if field.has_fields:
        return _Default(msgspec.field(default_factory=_struct(field.target, known_only=known_only)))
    zero = _ZERO[field.type]
    if omitted:
        return _Default(msgspec.field(default=zero))
    return _Default(msgspec.field(default_factory=_always(zero)))


def _nothing(*, omitted: bool) -> _Default:
    if omitted:
        return _Default(msgspec.field(default=None), is_none=True)
    return _Default(msgspec.field(default_factory=_always(None)), is_none=True)


def _always(value: object) -> Callable[[], object]:
    return lambda: value


def _annotation(written: str, *, known_only: bool) -> Any:  # noqa: ANN401 -- made at run time
    if written.startswith("*"):
        return _annotation(written[1:], known_only=known_only)
    if written.startswith("[]"):
        return list[_annotation(written[2:], known_only=known_only)]
    if written.startswith("map:"):
        return dict[str, _annotation(written[4:], known_only=known_only)]
    return _PLAIN[written] if written in _PLAIN else _struct(written, known_only=known_only)


def _go_words(type_name: str, complaint: str) -> str:
    path = _PATH.search(complaint)
    said = _PATH.sub("", complaint)
    got = _EXPECTED.match(said)
    if got is None:
        return said
    kind = _JSON_NAMES.get(got[1], got[1])
    steps = [s for s in re.split(r"\.|\[\d*\.*\]", path[1]) if s] if path else []
    owner, wanted = _place(type_name, steps)
    named = ".".join((owner.rpartition(".")[2], *steps))
    return f"json: cannot unmarshal {kind} into Go struct field {named} of type {wanted}"


def _place(type_name: str, steps: list[str]) -> tuple[str, str]:
    """Return the type that owns the last step, and the Go type that was wanted there."""
    owner, wanted = type_name, type_name
    for step in steps:
        field = table.types()[wanted].fields.get(step) if wanted in table.types() else None
        if field is None:
            continue
        owner, wanted = wanted, field.target
    if wanted in table.types():
        return owner, "v1." + wanted.rpartition(".")[2]
    return owner, wanted
