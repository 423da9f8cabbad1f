"""Shared code of the commands that read a cluster and its cloud: plan, explain, orphans.

They accept the manager's flags, configuration file and environment, and a few flags of their own.
The cluster is chosen like kubectl chooses it. Exit code 1 means failure; standard error says why.
"""

import asyncio
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from random import SystemRandom
from typing import TypeVar

import msgspec
import yaml

from pileus.app import help as help_text
from pileus.app import validate
from pileus.app.background import background
from pileus.app.context import ManagerContext
from pileus.app.errors import CommandFailed, Fatal, NoApiServer
from pileus.app.plan import failing_if_unreadable
from pileus.app.run import ending_of, loop_factory
from pileus.app.settings import TABLE, CommandSettings, build_config
from pileus.app.startup import World, provider_named
from pileus.cli.arguments import UsageError
from pileus.cli.object_names import (
    OBJECT,
    RESOURCES,
    WORDS,
    Named,
    parsed_object,
    within_namespace,
)
from pileus.cli.terminal import CLEAR, Terminal, is_unwritable, printable
from pileus.cloud.choice import NO_PROVIDER, CloudSettings
from pileus.cloud.registry import PROVIDERS
from pileus.dataclass import dataclass
from pileus.kube.access import Access
from pileus.kube.config.choose import load_user_access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.model.meta import KubeObject
from pileus.kube.settings import ClientSettings
from pileus.kube.store import NamespacedName
from pileus.objects.preview import Scope
from pileus.runtime.leadership import SYSTEM_TIMES
from pileus.settings.config import Config
from pileus.settings.declare import flag_of
from pileus.settings.flags import Flag, FlagError, Group, Table
from pileus.settings.kinds import STRING
from pileus.settings.sources import Settings, gather
from pileus.settings.values import Values
from pileus.suggest import closest, did_you_mean
from pileus.telemetry.logs import logging_to
from pileus.telemetry.mask import masked
from pileus.telemetry.settings import LogSettings

T = TypeVar("T")

FAILED = 1
PROGRESS_AFTER = 1.0
PROGRESS_STEP = 0.25
"""Seconds before progress is shown, and between two updates of it."""
QUIET = -1
"""A verbosity below which only warnings and errors are logged."""
HELP = flag_of(CommandSettings, "help")
CLOUD_PROVIDER = flag_of(CloudSettings, "provider")
VERBOSITY = flag_of(LogSettings, "verbosity")
OUTPUT = Flag(
    "output", STRING, "text", "Output format: text, json or yaml.", short="o", only_flag=True
)
KUBECONFIG = Flag(
    "kubeconfig",
    STRING,
    "",
    "Kubeconfig file; empty: $KUBECONFIG, else ~/.kube/config, else the pod's service account.",
)
"""The manager's flag as it works for these commands; only for help."""
CONTEXT = Flag(
    "context", STRING, "", "Context of the kubeconfig; empty: its current context.", only_flag=True
)
NAMESPACE = Flag(
    "namespace",
    STRING,
    "",
    "Namespace of an object that is named without one; empty: that of the context.",
    short="n",
    only_flag=True,
)
OUTPUTS = ("text", "json", "yaml")
SET_PROVIDER = (
    "Fix: give the flags that the manager runs with, such as --cloud-provider=NAME "
    "--cloud-config=FILE (pileus providers lists the names)"
)
CLOSING = (
    "All flags of the manager are accepted: use the flags that it runs with (pileus run --help)."
)


class Takes(Enum):
    """Which object a command line names."""

    NOTHING = ""
    OPTIONAL = f"[{OBJECT}]"
    ONE = f"({OBJECT})"


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its arguments and its help."""

    text: str
    flags: Group
    takes: Takes = Takes.NOTHING
    needs_cloud: bool = True
    """False: --cloud-provider may be left out."""
    cloud_flag: Flag[str] | None = CLOUD_PROVIDER
    """The flag --cloud-provider as it works for this command, for help; None: it has no effect."""
    outputs: tuple[str, ...] = OUTPUTS

    def usage(self, program: str) -> str:
        return " ".join(filter(None, (program, self.takes.value, "[flags]")))


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed command line."""

    scope: Scope
    values: Values
    config: Config
    world: World

    @property
    def as_data(self) -> bool:
        return self.values[OUTPUT] in {"json", "yaml"}

    def data(self, text: str) -> str:
        """Returns JSON in the format of `--output`."""
        return yaml_text(msgspec.json.decode(text)) if self.values[OUTPUT] == "yaml" else text


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs coroutines that read cluster and cloud, and shows progress meanwhile."""

    terminal: Terminal

    def __call__(self, work: Coroutine[object, object, T]) -> T:
        """Returns the result. Of several errors, raises the one that decides the exit code."""

        async def run() -> T:
            async with showing_progress(self.terminal, "Reading the cluster and the cloud"):
                return await work

        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                return runner.run(run())
        except BaseExceptionGroup as errors:
            raise ending_of(errors) from None


Work = Callable[[Request, Runner], int]
"""The work of a command; returns its exit code."""


def run_cluster_command(
    program: str, command: Command, arguments: Sequence[str], terminal: Terminal, work: Work
) -> int:
    """Parse the command line and do the work. Returns the exit code; errors are printed."""
    table = Table((command.flags, *TABLE.groups))
    try:
        settings = gather(table, program, arguments, terminal.environment, takes_words=True)
        if settings.values[HELP]:
            terminal.out.write(_help(program, command, terminal))
            return 0
        _check_output(settings.values[OUTPUT], command.outputs)
        named = named_object(command.takes, settings.words, settings.values)
        return _work(settings, named, terminal, work, needs_cloud=command.needs_cloud)
    except (FlagError, UsageError) as error:
        return terminal.misused(program, command.usage(program), str(error), error.hint)
    except InvalidConfiguration as error:
        return terminal.refuse(masked(str(error)))
    except NoApiServer as error:
        return terminal.refuse(masked(str(error)), f"Fix: {error.fix}")
    except (CommandFailed, Fatal) as error:
        return terminal.refuse(masked(str(error)))


def _work(
    settings: Settings, named: Named, terminal: Terminal, work: Work, *, needs_cloud: bool
) -> int:
    values = settings.values
    terminal.err.writelines(f"{printable(note)}\n" for note in settings.notes)
    config = build_config(values)
    if needs_cloud and not config[CloudSettings].clouds[0].provider:
        raise UsageError("--cloud-provider is not set", SET_PROVIDER)
    wrong = (*validate.logging_problems(config), *validate.problems(config))
    if wrong := tuple(each for each in wrong if needs_cloud or each != NO_PROVIDER):
        raise CommandFailed(validate.together(wrong))
    if needs_cloud:
        for choice in config[CloudSettings].clouds:
            provider_named(PROVIDERS, choice)
    level = values[VERBOSITY] if values.given(VERBOSITY) else QUIET
    with logging_to(LogSettings(verbosity=level), terminal.err, terminal.err):
        access = user_access(config[ClientSettings], values, terminal.environment)
        world = _world(access, terminal)
        request = Request(named.scope(access.namespace), values, config, world)
        try:
            return work(request, Runner(terminal))
        except (CommandFailed, Fatal, UsageError, BrokenPipeError):
            raise
        except Exception as error:
            if is_unwritable(error):
                raise
            # The end of the program: a bug is printed in full, without secrets.
            terminal.err.write(printable(masked(traceback.format_exc())))
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


def named_object(takes: Takes, words: Sequence[str], values: Values) -> Named:
    """Returns the object that the words name. Raises UsageError."""
    if takes is Takes.NOTHING and words:
        raise UsageError(f'expected no arguments, but got "{words[0]}"')
    if takes is Takes.ONE and not words:
        raise UsageError("name the object to explain")
    return within_namespace(parsed_object(words), values[NAMESPACE])


def _check_output(given: str, known: Sequence[str]) -> None:
    if given not in known:
        meant = closest(given, known)
        hint = f"did you mean -o {meant}?" if meant else ""
        raise UsageError(f'--output cannot be "{given}" (known: {", ".join(known)})', hint)


def _help(program: str, command: Command, terminal: Terminal) -> str:
    cloud = (command.cloud_flag,) if command.cloud_flag else ()
    shown = Group("", (*command.flags.flags, KUBECONFIG, *cloud, HELP))
    width = help_text.width_of(terminal.width(terminal.out))
    kinds = f"\nKinds: {', '.join(WORDS)}\n" if command.takes is not Takes.NOTHING else ""
    return (
        f"{help_text.wrapped(command.text, width)}\nUsage:\n  {command.usage(program)}\n{kinds}"
        f"{help_text.section(shown, width)}\n{help_text.wrapped(CLOSING, width)}"
    )


@asynccontextmanager
async def showing_progress(terminal: Terminal, text: str) -> AsyncGenerator[None]:
    """Show `text` and the elapsed seconds on a terminal while the block lasts."""
    if not terminal.width(terminal.err):
        yield
        return
    async with background(_show_progress(terminal, text)):
        yield


async def _show_progress(terminal: Terminal, text: str) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(PROGRESS_AFTER)
    try:
        while True:
            terminal.err.write(f"{CLEAR}{text} … {loop.time() - began:.0f} s")
            terminal.err.flush()
            await asyncio.sleep(PROGRESS_STEP)
    finally:
        terminal.err.write(CLEAR)
        terminal.err.flush()


async def check_exists(context: ManagerContext, scope: Scope) -> KubeObject | None:
    """Returns the object of the scope; None if the scope names none.

    Raises CommandFailed if it does not exist, with the closest name that does.
    """
    if not scope.kind:
        return None
    informer = context.informers.of(RESOURCES[scope.kind])
    async with failing_if_unreadable(context):
        await informer.wait_synced()
    found = informer.store.get(NamespacedName(scope.namespace, scope.name))
    if found is not None:
        return found
    name = shown_name(scope.namespace, scope.name)
    known = [
        shown_name(each.metadata.namespace, each.metadata.name) for each in informer.store.list()
    ]
    raise CommandFailed(f'there is no {scope.kind} "{name}"{did_you_mean(name, known)}')


def shown_name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def yaml_text(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def json_text(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
