"""All commands with their flags, from their own declarations: for completion and man pages."""

import importlib

from pileus.app.help import ABOUT
from pileus.app.settings import TABLE
from pileus.cli.arguments import Usage
from pileus.cli.cluster_command import KUBECONFIG, Command, Takes
from pileus.cli.main import COMMANDS, LAB_COMMANDS
from pileus.cli.object_names import WORDS
from pileus.cloud.registry import GROUP
from pileus.dataclass import dataclass
from pileus.deployment.flags import OWN
from pileus.entry_points import entry_points
from pileus.settings.flags import AnyFlag, Group

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """One command."""

    name: str
    summary: str
    text: str
    usage: str
    groups: tuple[Group, ...] = ()
    words: tuple[str, ...] = ()
    """The first argument that is no flag, if it is one of a few words."""
    outputs: tuple[str, ...] = ()

    @property
    def flags(self) -> tuple[AnyFlag, ...]:
        """The flags that may be given on the command line, without deprecated ones."""
        found = {flag.name: flag for group in reversed(self.groups) for flag in group.flags}
        usable = (each for each in found.values() if not each.deprecated and not each.only_file)
        return tuple(sorted(usable, key=lambda flag: flag.name))

    def values_of(self, flag: AnyFlag) -> tuple[str, ...]:
        """The values of a flag, if they are a few words; of clouds, those that are installed."""
        if flag.name == "cloud-provider":
            return tuple(sorted({each.name for each in entry_points(GROUP)}))
        return self.outputs if flag.name == "output" and self.outputs else flag.kind.choices


def declared() -> tuple[Declared, ...]:
    """Returns the commands of this distribution, in the order of help."""
    return tuple(_declared(name, text) for name, text in COMMANDS.items())


def lab_commands() -> tuple[str, ...]:
    """Returns the names of the laboratory's commands, which declare their arguments there."""
    return tuple(LAB_COMMANDS)


def _declared(name: str, summary: str) -> Declared:
    program = f"pileus {name}"
    module = importlib.import_module(f"pileus.cli.{name}")
    command: object = getattr(module, "COMMAND", None)
    usage: object = getattr(module, "USAGE", None)
    if isinstance(command, Command):
        return Declared(
            name=name,
            summary=summary,
            text=command.text,
            usage=command.usage(program),
            groups=(command.flags, Group("Cluster", (KUBECONFIG,)), *TABLE.groups),
            words=() if command.takes is Takes.NOTHING else tuple(WORDS),
            outputs=command.outputs,
        )
    if isinstance(usage, Usage):
        choices = next((each.choices for each in usage.arguments if not each.is_flag), ())
        return Declared(
            name=name, summary=summary, text=usage.text, usage=usage.line(program), words=choices
        )
    own = (OWN,) if name == "manifests" else ()
    text = str(getattr(module, "TEXT", ABOUT))
    return Declared(
        name=name,
        summary=summary,
        text=text,
        usage=f"{program} [flags]",
        groups=(*own, *TABLE.groups),
    )
