"""Turn the text of a YAML or JSON file into plain values, with errors that name the place."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import msgspec

from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.decoding import DEEPEST, Malformed, decode

if TYPE_CHECKING:
    import yaml

_ANYTHING: msgspec.json.Decoder[object] = msgspec.json.Decoder(object)
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_QUOTED = re.compile(r"""'(?!<)[^']{2,}'|"[^"]{2,}\"""")


def parse(text: bytes, where: str) -> object:
    """Return what the text says. Errors quote nothing of it: it may hold secrets."""
    if text.lstrip().startswith(b"{"):
        try:
            return decode(_ANYTHING, text)
        except Malformed:
            pass  # YAML's flow style begins like JSON, and its parser names line and column
    import yaml  # noqa: PLC0415 -- 15 ms that a pod needs not pay

    try:
        loader = _loader()
        _refuse_depth(text, where, loader)
        return yaml.load(text, loader)  # noqa: S506 -- a SafeLoader
    except yaml.MarkedYAMLError as e:
        raise InvalidConfiguration(f"{where} is not YAML: {_place(e)}{_problem(e)}") from None
    except (yaml.reader.ReaderError, UnicodeDecodeError):
        raise InvalidConfiguration(f"{where} is not UTF-8 text; save it as UTF-8") from None
    except (yaml.YAMLError, ValueError) as e:
        raise InvalidConfiguration(f"{where} is not YAML: {type(e).__name__}") from None


def _refuse_depth(text: bytes, where: str, loader: "type[yaml.SafeLoader]") -> None:
    """Refuse what is nested so deep that building it would overflow the stack of libyaml."""
    import yaml  # noqa: PLC0415 -- see above

    depth = 0
    parse = cast("Callable[..., Iterator[yaml.Event]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType] -- the stub does not say
    for event in parse(text, loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise InvalidConfiguration(
                f"{where} is nested more than {DEEPEST} levels deep at line {line}; "
                "no kubeconfig needs that, so check how the file was made"
            )


def _loader() -> "type[yaml.SafeLoader]":
    """Return a loader for which a date is a string, as it is for kubectl."""
    import yaml  # noqa: PLC0415 -- see above

    base: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _place(error: "yaml.MarkedYAMLError") -> str:
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _problem(error: "yaml.MarkedYAMLError") -> str:
    return _QUOTED.sub("***", error.problem or error.context or "malformed")
