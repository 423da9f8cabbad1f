"""Commands that are printed as a fix: they act on the cluster, and with the flags, of this command.

A user pastes them into the shell in which `pileus doctor`, `pileus plan` or `pileus explain` ran.
"""

import re
import shlex
from collections.abc import Iterable

from pileus.app.settings import TABLE
from pileus.cli.cluster_command import CONTEXT
from pileus.cloud.choice import CloudSettings
from pileus.dataclass import dataclass
from pileus.kube.settings import ClientSettings
from pileus.settings.declare import flag_of
from pileus.settings.flags import AnyFlag
from pileus.settings.values import Source, Values

CLUSTER: tuple[AnyFlag, ...] = (
    flag_of(ClientSettings, "kubeconfig"),
    CONTEXT,
    flag_of(ClientSettings, "master"),
)
"""The flags that choose the cluster."""
NAMES = {
    "helm": ("kubeconfig", "kube-context", "kube-apiserver"),
    "kubectl": ("kubeconfig", "context", "server"),
    "pileus": ("kubeconfig", "context", "master"),
}
"""What each program calls them."""
DOCTOR = "doctor"
"""It reads the flags of the installed manager by itself."""
PROVIDER = flag_of(CloudSettings, "provider")
LOCAL = frozenset({"kubeconfig", "master", "v", "vmodule", "help", "version"})
"""Flags that mean the command that was run, and not the manager."""
_PROGRAM = re.compile(r"(?<![\w./-])(kubectl|helm)(?= [a-z-])")
_READER = re.compile(
    r"(?<![\w./-])pileus (?P<name>doctor|explain|orphans|plan)\b"
    r"(?P<rest>.*?)(?=$|   # |; | && | \| )"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The cluster and the cloud that a command has read."""

    cluster: tuple[str, ...] = ("", "", "")
    """The values of `CLUSTER`."""
    flags: tuple[str, ...] = ()
    """The manager's flags on the command line."""
    more: tuple[str, ...] = ()
    """Flags that it was not given, and that a command about the cloud needs."""
    pod: str = ""
    """What runs a command in a pod of the manager, with its flags after `…`; empty: nothing."""

    def aimed(self, text: str) -> str:
        """Returns a fix whose commands act on this cluster, with these flags."""
        read = _READER.sub(self._reader, text)
        return _PROGRAM.sub(lambda found: f"{found[0]}{self._cluster(found[1])}", read)

    def _reader(self, found: re.Match[str]) -> str:
        flags = self.flags
        if found["name"] != DOCTOR:
            if self.pod:
                return self.pod.replace("…", found[0])
            flags += self.more
        has = names_of(found["rest"].split())
        added = (shlex.quote(one) for one in flags if not names_of([one]) & has)
        return " ".join((f"{found[0]}{self._cluster('pileus')}", *added))

    def _cluster(self, program: str) -> str:
        pairs = zip(NAMES[program], self.cluster, strict=True)
        return "".join(f" --{name}={shlex.quote(value)}" for name, value in pairs if value)


NOWHERE = Target()
"""For texts whose commands stay as they are."""


def target_of(values: Values, more: Iterable[str] = (), pod: str = "") -> Target:
    """Returns what a command line reads. `more`: flags that it was not given."""
    known = names_of(manager_flags(values))
    return Target(
        cluster=tuple(str(values[flag]) for flag in CLUSTER),
        flags=manager_flags(values, {Source.FLAG}),
        more=tuple(one for one in more if not names_of([one]) & known),
        pod="" if values[PROVIDER] else pod,
    )


def names_of(flags: Iterable[str]) -> frozenset[str]:
    return frozenset(one.partition("=")[0] for one in flags)


def manager_flags(
    values: Values, sources: Iterable[Source] = (Source.FLAG, Source.ENVIRONMENT)
) -> tuple[str, ...]:
    """Returns the given flags that a manager can have."""
    return tuple(
        f"--{flag.name}={text}"
        for flag in sorted(TABLE, key=lambda one: one.name)
        if values.source(flag) in sources and flag.name not in LOCAL
        if (text := flag.written(values[flag])) is not None
    )
