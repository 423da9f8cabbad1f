"""`pileus man`: prints manual pages, generated from the declarations of commands and flags."""

from collections.abc import Iterable, Iterator, Sequence

from pileus.cli.arguments import Argument, Help, Usage, UsageError, answered, parse
from pileus.cli.declared import Declared, declared
from pileus.cli.main import COMMANDS
from pileus.cli.terminal import Terminal
from pileus.settings.flags import AnyFlag
from pileus.version import PILEUS

USAGE = Usage(
    "Print the manual page of pileus or of one of its commands.",
    (Argument(name="page", text="The page.", choices=("pileus", *COMMANDS)),),
    closing=(
        "\nExamples:\n\n"
        "  pileus man history | man -l -\n"
        "  pileus man pileus > /usr/local/share/man/man1/pileus.1\n"
    ),
)


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    try:
        given = parse(program, USAGE, arguments)
    except (Help, UsageError) as error:
        return answered(error, program, terminal)
    terminal.out.write(page(given.text("page")))
    return 0


def page(name: str) -> str:
    """Returns the page of `pileus` or of a command, in the language of man(7)."""
    commands = {each.name: each for each in declared()}
    lines = _overview(commands.values()) if name == "pileus" else _page(commands[name])
    return "".join(f"{line}\n" for line in lines)


def _title(name: str, summary: str) -> Iterator[str]:
    yield f'.TH "{name.upper()}" "1" "" "pileus {PILEUS}" "Pileus"'
    yield ".SH NAME"
    yield f"{_safe(name)} \\- {_safe(summary)}"


def _overview(commands: Iterable[Declared]) -> Iterator[str]:
    yield from _title("pileus", "a Kubernetes cloud-controller-manager")
    yield ".SH SYNOPSIS"
    yield ".B pileus"
    yield "command [flags]"
    yield ".SH COMMANDS"
    for each in commands:
        yield ".TP"
        yield f".BR pileus\\-{_safe(each.name)} (1)"
        yield _safe(each.summary)


def _page(command: Declared) -> Iterator[str]:
    yield from _title(f"pileus-{command.name}", command.summary)
    yield ".SH SYNOPSIS"
    yield _safe(command.usage)
    yield ".SH DESCRIPTION"
    for number, part in enumerate(filter(None, command.text.split("\n\n"))):
        if number:
            yield ".PP"
        yield _safe(" ".join(part.split()))
    for group in command.groups:
        shown = [each for each in group.flags if not each.deprecated and not each.only_file]
        if shown:
            yield f'.SH "{_safe(group.title.upper())} FLAGS"'
            yield from (line for flag in shown for line in _flag(flag))
    yield ".SH SEE ALSO"
    yield ".BR pileus (1)"


def _flag(flag: AnyFlag) -> Iterator[str]:
    short = f"-{flag.short}, " if flag.short else ""
    value = "" if flag.kind.bare is not None else f"={flag.kind.name or 'value'}"
    yield ".TP"
    yield f"\\fB{_safe(short)}{_safe(f'--{flag.name}{value}')}\\fR"
    default = "" if flag.kind.bare == "true" and not flag.default else flag.shown_default()
    yield _safe(f"{flag.help}{f' (default {default})' if default else ''}")


def _safe(text: str) -> str:
    """Returns the text with everything escaped that man(7) would read as a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
