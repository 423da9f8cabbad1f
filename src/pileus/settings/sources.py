"""Where settings come from: a file, then the environment, then the command line."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pileus.dataclass import dataclass
from pileus.settings.flags import AnyFlag, FlagError, Table, parse_arguments
from pileus.settings.go_quote import quote, quote_all
from pileus.settings.values import Source, Values

_PREFIX = "PILEUS_"
_VERY_LIKE = 0.85


@dataclass(frozen=True, slots=True)
class Settings:
    """All values, and what a user should hear about the way they were given."""

    values: Values
    notes: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    """What was given beside flags."""


def gather(
    table: Table,
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    takes_words: bool = False,
) -> Settings:
    """Read all sources; the command line wins over the environment, which wins over the file.

    Raises FlagError at the first thing that cannot be understood.
    """
    line = parse_arguments(table, arguments)
    if any(line.positional) and not takes_words:
        stray = quote_all(line.positional)
        message = f"{quote(program)} does not take any arguments, got {stray}"
        raise FlagError(message, hint=_switch_hint(line.positional), usage=False)
    layers = {Source.FLAG: line.values, Source.ENVIRONMENT: _from_environment(table, environment)}
    if path := _config_file(table, Values.layered(layers)):
        from pileus.settings.config_file import read_settings  # noqa: PLC0415 -- YAML, only where a file is given

        layers[Source.FILE] = read_settings(table, Path(path))
    values = Values.layered(layers)
    notes = (*_deprecations(table, values), *_strangers(table, environment))
    return Settings(values, notes, line.positional)


def _config_file(table: Table, values: Values) -> str:
    flag = table.find("config")
    return "" if flag is None else str(values[flag])


def _switch_hint(positional: Sequence[str]) -> str:
    if any(word in {"true", "false"} for word in positional):
        return "switches take their value after an equals sign: --name=false"
    return ""


def _from_environment(table: Table, environment: Mapping[str, str]) -> Mapping[str, object]:
    return {
        flag.name: _parsed(flag, environment[flag.variable])
        for flag in table
        if flag.variable in environment and not (flag.only_flag or flag.only_file)
    }


def _parsed(flag: AnyFlag, text: str) -> object:
    try:
        return flag.kind.parse(text)
    except ValueError as error:
        message = f"environment variable {flag.variable}: invalid value {quote(text)}: {error}"
        raise FlagError(message, usage=False) from None


def _deprecations(table: Table, values: Values) -> Iterator[str]:
    for flag in sorted(table, key=lambda one: one.name):
        if flag.deprecated and flag in values:
            yield f"Flag --{flag.name} has been deprecated, {flag.deprecated}"


def _strangers(table: Table, environment: Mapping[str, str]) -> Iterator[str]:
    """Variables that look like a mistyped flag.

    Others with our prefix are ignored: Kubernetes itself creates PILEUS_SERVICE_HOST and its
    like for a Service called pileus.
    """
    known = [flag.variable for flag in table if not (flag.only_flag or flag.only_file)]
    unknown = [each for each in environment if each.startswith(_PREFIX) and each not in known]
    if not unknown:
        return
    from difflib import get_close_matches  # noqa: PLC0415 -- only for such variables

    for variable in sorted(unknown):
        for meant in get_close_matches(variable, known, n=1, cutoff=_VERY_LIKE):
            yield f"Environment variable {variable} is not used (did you mean {meant}?)"
