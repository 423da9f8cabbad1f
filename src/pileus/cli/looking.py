"""The frame of commands that look at a cluster and its cloud as the manager does.

They take the manager's flags, file, environment and kubeconfig, and a few flags of their own.
Exit codes are their own too, except: 1 something is wrong, and was said on standard error.
"""

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import SystemRandom
from typing import TypeVar

from pileus.app import help as help_text
from pileus.app import validate
from pileus.app.config import Config, build_config
from pileus.app.declared import process
from pileus.app.declared.table import TABLE
from pileus.app.ending import CommandFailed, Fatal
from pileus.app.flags import Flag, FlagError, Group, Table, Values
from pileus.app.kinds import STRING
from pileus.app.opening import World
from pileus.app.run import ending_of, loop_factory
from pileus.app.settings import Settings, gather
from pileus.cli.arguments import UsageError
from pileus.cli.progress import progress
from pileus.cli.terminal import Terminal
from pileus.objects.planned import EVERYTHING, Scope
from pileus.runtime.leadership import SYSTEM_TIMES
from pileus.suggest import closest
from pileus.telemetry.logs import LogSettings, logging_to
from pileus.telemetry.mask import masked

T = TypeVar("T")

FAILED = 1
QUIET = -1
"""A verbosity below which only warnings and errors are written."""
OUTPUT = Flag(
    "output", STRING, "text", "How the answer is written: text or json.", short="o", only_flag=True
)
OUTPUTS = ("text", "json")
KINDS = {
    "node": "Node",
    "nodes": "Node",
    "no": "Node",
    "service": "Service",
    "services": "Service",
    "svc": "Service",
}


@dataclass(frozen=True, slots=True)
class Manual:
    """What help says of a command."""

    synopsis: str
    text: str
    flags: Group


@dataclass(frozen=True, slots=True)
class Asked:
    """A command line that was understood."""

    words: tuple[str, ...]
    values: Values
    config: Config
    world: World

    @property
    def as_json(self) -> bool:
        return self.values[OUTPUT] == "json"


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs what looks at cluster and cloud, with a sign of life; may be called again."""

    terminal: Terminal

    def __call__(self, work: Coroutine[object, object, T]) -> T:
        """Errors: of several at once, the one that says how the program is to end."""

        async def run() -> T:
            async with progress(self.terminal, "asking the cluster and the cloud"):
                return await work

        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                return runner.run(run())
        except BaseExceptionGroup as errors:
            raise ending_of(errors) from None


Work = Callable[[Asked, Runs], int]
"""What a command does, and its exit code."""


def look(
    program: str, manual: Manual, arguments: Sequence[str], terminal: Terminal, work: Work
) -> int:
    """Understand the command line, and do the work; whatever is wrong is told, not raised."""
    table = Table((manual.flags, *TABLE.groups))
    try:
        settings = gather(table, program, arguments, terminal.environment, takes_words=True)
        if settings.values[process.HELP]:
            terminal.out.write(_help(program, manual, terminal))
            return 0
        return _work(settings, terminal, work)
    except (FlagError, UsageError) as error:
        return terminal.refuse(str(error), error.hint or f"`{program} --help` says more")
    except (CommandFailed, Fatal) as error:
        return terminal.refuse(masked(str(error)))


def _work(settings: Settings, terminal: Terminal, work: Work) -> int:
    values = settings.values
    _check_output(values[OUTPUT])
    terminal.err.writelines(f"{note}\n" for note in settings.notes)
    config = build_config(values)
    if wrong := (*validate.logging_problems(config), *validate.problems(config)):
        raise CommandFailed(validate.together(wrong))
    level = values[process.V] if values.given(process.V) else QUIET
    world = World(terminal.environment, SYSTEM_TIMES, SystemRandom(), lambda _: None)
    with logging_to(LogSettings(verbosity=level), terminal.err, terminal.err):
        asked = Asked(settings.words, values, config, world)
        try:
            return work(asked, Runs(terminal))
        except (CommandFailed, Fatal, UsageError, BrokenPipeError):
            raise
        except Exception:  # noqa: BLE001 -- the end of the program: a bug is shown whole, secrets not
            terminal.err.write(masked(traceback.format_exc()))
            return FAILED


def scope_of(program: str, words: Sequence[str]) -> Scope:
    """The object that `node NAME` or `service NAMESPACE/NAME` names; everything, if nothing does.

    Errors: `UsageError`.
    """
    if not words:
        return EVERYTHING
    parts = [part for word in words for part in word.split("/")]
    kind = KINDS.get(parts[0].casefold())
    if kind is None:
        meant = closest(parts[0], ("node", "service"))
        hint = f"did you mean {program} {meant}?" if meant else ""
        raise UsageError(f'{program}: "{parts[0]}" is no kind (known: node, service)', hint)
    match kind, parts[1:]:
        case "Node", [name] if name:
            return Scope(kind, "", name)
        case "Service", [name] if name:
            return Scope(kind, "default", name)
        case "Service", [namespace, name] if namespace and name:
            return Scope(kind, namespace, name)
        case _:
            form = "node NAME" if kind == "Node" else "service NAMESPACE/NAME"
            raise UsageError(f'{program}: expected {form}, got "{" ".join(words)}"')


def _check_output(given: str) -> None:
    if given not in OUTPUTS:
        meant = closest(given, OUTPUTS)
        hint = f"did you mean -o {meant}?" if meant else ""
        raise UsageError(f'--output cannot be "{given}" (known: {", ".join(OUTPUTS)})', hint)


def _help(program: str, manual: Manual, terminal: Terminal) -> str:
    own = help_text.section(manual.flags, terminal.width(terminal.out))
    return (
        f"{manual.text}\n\nUsage:\n  {program} {manual.synopsis} [flags]\n{own}\n"
        "And all flags of the manager, such as --kubeconfig, --cloud-provider, --cloud-config and\n"
        "--controllers: give those that the manager runs with. `pileus run --help` lists them.\n"
    )
