"""The field tables (`*.fields`): facts about each kind, one line per field.

    Taint
     key string #1
     value string #2 omitempty
     timeAdded *time #4 omitempty

A type's name starts a line; its fields are indented by one blank: JSON name, type, flags.
Types: string, bool, int32, int64, time, microtime, quantity, intorstring, bytes, any, the name of
another type (`meta.ObjectMeta` in another table), with the prefixes `*` (may be absent), `[]` and
`map:`. Flags: the number in protobuf (`#2.1`: 1 inside of an embedded message 2), `omitempty`,
`omitzero`, `required` (in OpenAPI), and how a strategic merge patch treats the field:
`merge`, `merge=<key>`, `replace`, `retainKeys`. `tools/extract_schema.py` writes them.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

PLAIN = frozenset({
    *("string", "bool", "int", "int32", "int64", "uint8"),
    *("time", "microtime", "quantity", "intorstring", "bytes", "any"),
})


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str
    """As in the table, but the name of another type is always qualified."""
    flags: frozenset[str]
    merge_key: str | None
    """The key by which a list merges; "" if by value; None if the list is replaced."""
    numbers: tuple[int, ...] = ()
    """Field number in protobuf."""
    target: str = ""
    """Name of the type without prefixes."""
    is_list: bool = False
    is_map: bool = False
    has_fields: bool = False


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    """Qualified name: `core.Taint`."""
    fields: dict[str, Field]


@cache
def types() -> dict[str, Type]:
    """Returns every type of every table, by qualified name."""
    found: dict[str, Type] = {}
    for file in files("pileus_lab.apiserver.schema").iterdir():
        if file.name.endswith(".fields"):
            package = file.name.removesuffix(".fields")
            found |= _parse(package, file.read_text(encoding="utf-8"))
    return found


def _parse(package: str, table: str) -> dict[str, Type]:
    found: dict[str, Type] = {}
    current: dict[str, Field] = {}
    for line in table.splitlines():
        if line.startswith(" "):
            parsed = _field(package, line)
            current[parsed.name] = parsed
        elif line:
            current = {}
            found[f"{package}.{line}"] = Type(f"{package}.{line}", current)
    return found


def _field(package: str, line: str) -> Field:
    name, written, *flags = line.split()
    target = written.rpartition(":")[2].replace("[]", "").replace("*", "")
    if target not in PLAIN and "." not in target:
        written = written.removesuffix(target) + f"{package}.{target}"
    merges = [flag.partition("=")[2] for flag in flags if flag.partition("=")[0] == "merge"]
    numbers = tuple(int(n) for flag in flags if flag[0] == "#" for n in flag[1:].split("."))
    plain = written.lstrip("*")
    return Field(
        name=name,
        type=written,
        flags=frozenset(flags),
        merge_key=merges[0] if merges else None,
        numbers=numbers,
        target=written.rpartition(":")[2].replace("[]", "").replace("*", ""),
        is_list=plain.startswith("[]"),
        is_map=plain.startswith("map:"),
        has_fields=target not in PLAIN,
    )
