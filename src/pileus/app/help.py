"""The text of `--help`: flags in groups, wrapped to the width of the terminal."""

import textwrap
from collections.abc import Iterator, Sequence

from pileus.settings.flags import AnyFlag, Group, Table
from pileus.settings.kinds import STRING

ABOUT = """\
The cloud-controller-manager connects a Kubernetes cluster to its cloud: it
initializes and removes nodes, and manages load balancers, routes and pod CIDRs.
"""
WIDEST = 120
"""The most columns of help."""
_GAP = 3
_NARROWEST = 40
_HANGING = 10


def width_of(columns: int) -> int:
    """Returns the width of help on a terminal with `columns` columns; 0: not a terminal."""
    return min(columns or WIDEST, WIDEST)


def usage(program: str, table: Table, columns: int) -> str:
    """Return the list of all flags."""
    sections = (section(group, columns) for group in table.groups)
    return f"Usage:\n  {program} [flags]\n" + "".join(sections)


def full(program: str, table: Table, columns: int) -> str:
    return f"{ABOUT}\n{usage(program, table, columns)}"


def wrapped(text: str, columns: int) -> str:
    """Returns the text wrapped to `columns`, paragraph by paragraph."""
    return "".join(f"{line}\n" for part in text.split("\n") for line in _wrap(part, 0, columns))


def section(group: Group, columns: int) -> str:
    """Returns the flags of one group under its title."""
    listed = (flag for flag in group.flags if not flag.deprecated and not flag.only_file)
    shown = sorted(listed, key=lambda flag: flag.name)
    title = f"{group.title} flags" if group.title else "Flags"
    return listing(title, [(_head(flag), described(flag)) for flag in shown], columns)


def listing(title: str, entries: Sequence[tuple[str, str]], columns: int) -> str:
    """Returns names and their descriptions, in two columns under a title."""
    indent = max(len(head) for head, _ in entries) + _GAP
    if columns and columns - indent < _NARROWEST:
        indent = _HANGING
    lines = [line for head, text in entries for line in _entry(head, text, indent, columns)]
    return f"\n{title}:\n\n" + "".join(f"{line}\n" for line in lines)


def _head(flag: AnyFlag) -> str:
    short = f"  -{flag.short}, " if flag.short else " " * 6
    bare = flag.kind.bare
    word = flag.kind.name + (f"[={bare}]" if bare and flag.kind.name else "")
    return f"{short}--{flag.name} {word}".rstrip()


def described(flag: AnyFlag) -> str:
    """Returns the help text of a flag, with its default if that is not empty, zero or false."""
    default = flag.shown_default()
    if default in {"", "0", "0s", "false", "[]"}:
        return flag.help
    shown = f'"{default}"' if flag.kind.name == STRING.name else default
    first, *rest = flag.help.split("\n")
    return "\n".join((f"{first} (default {shown})", *rest))


def _entry(head: str, text: str, indent: int, columns: int) -> Iterator[str]:
    lines = [wrapped for line in text.split("\n") for wrapped in _wrap(line, indent, columns)]
    if len(head) + _GAP > indent:
        yield head
    else:
        yield head.ljust(indent) + lines.pop(0)
    yield from (" " * indent + line for line in lines)


def _wrap(line: str, indent: int, columns: int) -> list[str]:
    if not columns:
        return [line]
    width = max(columns - indent, _NARROWEST)
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]
