"""The file of `--config`: flags by name, in YAML or JSON.

cloud-provider: local
leader-elect: false
controllers: ["*", -node-route-controller]
feature-gates: {CloudControllerManagerWebhook: true}
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import yaml

from pileus.settings.flags import AnyFlag, FlagError, Table
from pileus.settings.go_quote import quote
from pileus.settings.kinds import render_bool

_WORDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text (in quotes if it looks like something else)",
    list: "a list",
    dict: "a mapping",
    type(None): "nothing",
}


def read_settings(table: Table, path: Path) -> dict[str, object]:
    """Return the values by flag name. Raises FlagError that names the file and the line."""
    document = _document(path)
    values: dict[str, object] = {}
    for key, value, line in _entries(document, path):
        where = f"{path}:{line}"
        flag = table.find(key)
        if flag is None:
            raise _wrong(where, f"unknown key {quote(key)}", table.suggest(key))
        if flag.only_flag or flag.name == "config":
            raise _wrong(where, f"{quote(key)} can only be given on the command line")
        if flag.name in values:
            raise _wrong(where, f"key {quote(key)} is given twice")
        values[flag.name] = _value(flag, value, where)
    return values


def _wrong(where: str, message: str, hint: str = "") -> FlagError:
    return FlagError(f"{where}: {message}", hint=hint, usage=False)


def _document(path: Path) -> yaml.Node | None:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FlagError(f"--config: cannot read {path}: {error.strerror}", usage=False) from error
    except UnicodeDecodeError as error:
        raise FlagError(f"--config: {path} is not UTF-8 text", usage=False) from error
    if text.lstrip().startswith("{"):
        text = text.replace("\t", " ")  # JSON may be indented with tabs, YAML may not
    try:
        return yaml.SafeLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise _wrong(f"{path}:{line}", f"not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise _wrong(str(path), f"not valid YAML: {error}") from error
    except RecursionError as error:
        raise _wrong(str(path), "nested too deep; expected flag names and values") from error


def _entries(document: yaml.Node | None, path: Path) -> Iterator[tuple[str, object, int]]:
    if document is None:
        return
    if not isinstance(document, yaml.MappingNode):
        raise _wrong(f"{path}:1", "expected a mapping of flag names to values")
    for key, value in document.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _wrong(f"{path}:{line}", "expected the name of a flag")
        try:
            yield str(key.value), _plain(value), line
        except yaml.YAMLError as error:
            raise _wrong(f"{path}:{line}", f"not valid YAML: {error}") from error


def _plain(node: yaml.Node) -> object:
    construct = cast("Callable[[yaml.Node], object]", yaml.SafeLoader("").construct_document)  # pyright: ignore[reportUnknownMemberType] -- the stub says nothing about its argument
    return construct(node)


def _value(flag: AnyFlag, value: object, where: str) -> object:
    if flag.kind.document is not None:
        return _structured(flag.kind.document, value, where)
    if type(value) not in flag.kind.natural:
        wanted = " or ".join(_WORDS[one] for one in flag.kind.natural)
        got = _WORDS.get(type(value), "something else")
        raise _wrong(where, f"{quote(flag.name)} wants {wanted}, got {got}")
    try:
        if isinstance(value, list):
            return _list(flag, cast("list[object]", value))
        return flag.kind.parse(_text(value))
    except ValueError as error:
        raise _wrong(where, f"invalid value for {quote(flag.name)}: {error}") from None


def _structured(read: Callable[[object], object], value: object, where: str) -> object:
    try:
        return read(value)
    except ValueError as error:
        raise _wrong(where, str(error)) from None


def _list(flag: AnyFlag, items: list[object]) -> object:
    if any(isinstance(item, list | dict | None) for item in items):
        raise ValueError("a list may hold only plain values")
    read = flag.kind.item or flag.kind.parse
    parsed = [read(_text(item)) for item in items]
    return tuple(one for group in parsed for one in group)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return render_bool(value)
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return ",".join(f"{name}={_text(one)}" for name, one in pairs)
    return str(value)
