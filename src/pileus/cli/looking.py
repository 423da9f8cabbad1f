"""The frame of the commands that read a cluster and its cloud: plan, explain, orphans.

They take the manager's flags, configuration file and environment, and a few flags of their own.
The cluster is found as kubectl finds it. Exit code 1 means that something is wrong, and standard
error says what.
"""

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from random import SystemRandom
from typing import TypeVar

from pileus.app import help as help_text
from pileus.app import validate
from pileus.app.errors import CommandFailed, Fatal
from pileus.app.run import ending_of, loop_factory
from pileus.app.settings import TABLE, CommandSettings, build_config
from pileus.app.startup import World
from pileus.cli.arguments import UsageError
from pileus.cli.progress import progress
from pileus.cli.terminal import Terminal
from pileus.cloud.choice import CloudSettings
from pileus.kube.access import Access
from pileus.kube.config.choose import load_user_access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.settings import ClientSettings
from pileus.objects.preview import EVERYTHING, Scope
from pileus.runtime.leadership import SYSTEM_TIMES
from pileus.settings.config import Config
from pileus.settings.declare import flag_of
from pileus.settings.flags import Flag, FlagError, Group, Table
from pileus.settings.kinds import STRING
from pileus.settings.sources import Settings, gather
from pileus.settings.values import Values
from pileus.suggest import closest
from pileus.telemetry.logs import logging_to
from pileus.telemetry.mask import masked
from pileus.telemetry.settings import LogSettings

T = TypeVar("T")

FAILED = 1
QUIET = -1
"""A verbosity below which only warnings and errors are written."""
HELP = flag_of(CommandSettings, "help")
CLOUD_PROVIDER = flag_of(CloudSettings, "provider")
VERBOSITY = flag_of(LogSettings, "verbosity")
OUTPUT = Flag("output", STRING, "text", "Output format: text or json.", short="o", only_flag=True)
KUBECONFIG = Flag(
    "kubeconfig",
    STRING,
    "",
    "Kubeconfig file; empty: $KUBECONFIG, else ~/.kube/config, else the pod's service account.",
)
"""The manager's flag as it works here; for help alone."""
CONTEXT = Flag(
    "context", STRING, "", "Context of the kubeconfig; empty: its current one.", only_flag=True
)
NAMESPACE = Flag(
    "namespace",
    STRING,
    "",
    "Namespace of a Service that is named without one; empty: that of the context.",
    short="n",
    only_flag=True,
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
OBJECT = "node NAME | service [NAMESPACE/]NAME"
CLOSING = "All flags of the manager are accepted: use those that it runs with (pileus run --help)."


class Takes(Enum):
    """Which object a command line names."""

    NOTHING = ""
    PERHAPS_ONE = f"[{OBJECT}]"
    ONE = f"({OBJECT})"


@dataclass(frozen=True, slots=True)
class Manual:
    """A command: what it takes, and what its help says."""

    text: str
    flags: Group
    takes: Takes = Takes.NOTHING

    def usage(self, program: str) -> str:
        return " ".join(filter(None, (program, self.takes.value, "[flags]")))


@dataclass(frozen=True, slots=True)
class Asked:
    """A command line that was understood."""

    scope: Scope
    values: Values
    config: Config
    world: World

    @property
    def as_json(self) -> bool:
        return self.values[OUTPUT] == "json"


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs what reads cluster and cloud, with a sign of life; may be called again."""

    terminal: Terminal

    def __call__(self, work: Coroutine[object, object, T]) -> T:
        """Raises, of several errors at once, the one that says how the program is to end."""

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
    """Parse the command line and do the work. Every error is printed, none is raised."""
    table = Table((manual.flags, *TABLE.groups))
    try:
        settings = gather(table, program, arguments, terminal.environment, takes_words=True)
        if settings.values[HELP]:
            terminal.out.write(_help(program, manual, terminal))
            return 0
        _check_output(settings.values[OUTPUT])
        named = named_object(manual.takes, settings.words, settings.values)
        return _work(settings, named, terminal, work)
    except (FlagError, UsageError) as error:
        return terminal.misused(program, manual.usage(program), str(error), error.hint)
    except InvalidConfiguration as error:
        return terminal.refuse(masked(str(error)))
    except (CommandFailed, Fatal) as error:
        return terminal.refuse(masked(str(error)))


def _work(settings: Settings, named: "Named", terminal: Terminal, work: Work) -> int:
    values = settings.values
    terminal.err.writelines(f"{note}\n" for note in settings.notes)
    config = build_config(values)
    if not config[CloudSettings].clouds[0].provider:
        raise UsageError("--cloud-provider is not set", "use the flags that the manager runs with")
    if wrong := (*validate.logging_problems(config), *validate.problems(config)):
        raise CommandFailed(validate.together(wrong))
    level = values[VERBOSITY] if values.given(VERBOSITY) else QUIET
    with logging_to(LogSettings(verbosity=level), terminal.err, terminal.err):
        access = user_access(config[ClientSettings], values, terminal.environment)
        world = _world(access, terminal)
        asked = Asked(named.scope(access.namespace), values, config, world)
        try:
            return work(asked, Runs(terminal))
        except (CommandFailed, Fatal, UsageError, BrokenPipeError):
            raise
        except Exception:  # noqa: BLE001 -- the end of the program: a bug is shown whole, secrets not
            terminal.err.write(masked(traceback.format_exc()))
            return FAILED


def user_access(given: ClientSettings, values: Values, environ: Mapping[str, str]) -> Access:
    return load_user_access(given.kubeconfig, given.master, values[CONTEXT], environ)


def _world(access: Access, terminal: Terminal) -> World:
    return World(
        terminal.environment,
        SYSTEM_TIMES,
        SystemRandom(),
        lambda _: None,
        access=lambda _given, _environ: access,
    )


@dataclass(frozen=True, slots=True)
class Named:
    """The object that a command line names; no kind means everything."""

    kind: str = ""
    namespace: str = ""
    name: str = ""

    def scope(self, namespace: str) -> Scope:
        """`namespace` is that of a Service that is named without one."""
        if not self.kind:
            return EVERYTHING
        if self.kind == "Node":
            return Scope(self.kind, "", self.name)
        return Scope(self.kind, self.namespace or namespace, self.name)


def named_object(takes: Takes, words: Sequence[str], values: Values) -> Named:
    """Returns what `node NAME` or `service [NAMESPACE/]NAME` names. Raises UsageError."""
    namespace = values[NAMESPACE]
    if takes is Takes.NOTHING and words:
        raise UsageError(f'it takes no arguments, but got "{words[0]}"')
    if takes is Takes.ONE and not words:
        raise UsageError("name the object to explain")
    found = parsed_object(words)
    if namespace and found.kind != "Service":
        raise UsageError(f"--namespace={namespace} needs a Service: service NAME")
    if namespace and found.namespace not in {"", namespace}:
        raise UsageError(
            f"--namespace={namespace} contradicts service {found.namespace}/{found.name}"
        )
    return Named(found.kind, found.namespace or namespace, found.name)


def parsed_object(words: Sequence[str]) -> Named:
    if not words:
        return Named()
    parts = [part for word in words for part in word.split("/")]
    kind = KINDS.get(parts[0].casefold())
    if kind is None:
        meant = closest(parts[0], ("node", "service"))
        hint = f"did you mean {meant}?" if meant else ""
        raise UsageError(f'unknown kind "{parts[0]}" (known: node, service)', hint)
    match kind, parts[1:]:
        case "Node", [name] if name:
            return Named(kind, "", name)
        case "Service", [name] if name:
            return Named(kind, "", name)
        case "Service", [namespace, name] if namespace and name:
            return Named(kind, namespace, name)
        case _:
            form = "node NAME" if kind == "Node" else "service [NAMESPACE/]NAME"
            raise UsageError(f'expected {form}, but got "{" ".join(words)}"')


def _check_output(given: str) -> None:
    if given not in OUTPUTS:
        meant = closest(given, OUTPUTS)
        hint = f"did you mean -o {meant}?" if meant else ""
        raise UsageError(f'--output cannot be "{given}" (known: {", ".join(OUTPUTS)})', hint)


def _help(program: str, manual: Manual, terminal: Terminal) -> str:
    shown = Group("", (*manual.flags.flags, KUBECONFIG, CLOUD_PROVIDER, HELP))
    width = help_text.width_of(terminal.width(terminal.out))
    return (
        f"{help_text.wrapped(manual.text, width)}\nUsage:\n  {manual.usage(program)}\n"
        f"{help_text.section(shown, width)}\n{help_text.wrapped(CLOSING, width)}"
    )
