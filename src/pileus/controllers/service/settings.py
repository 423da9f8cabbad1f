"""Settings of the service controller."""

import re
from collections.abc import Iterator
from enum import StrEnum

from pileus.cloud.choice import CloudSettings
from pileus.dataclass import dataclass
from pileus.settings.checks import at_least_one, not_negative
from pileus.settings.config import Config
from pileus.settings.declare import choice, optional, setting, switch
from pileus.settings.go_quote import quote
from pileus.settings.kinds import DURATION, INT32, STRINGS

_SECTION, _OURS = "Service-lb-controller", "Pileus: services"
NO_DEFAULT_CLASS = "-"
"""The entry of `--service-classes` that excludes Services without a class."""
SWEEP_PERIOD = 600.0
"""Seconds between two searches for orphans if there are no full checks."""


class Policy(StrEnum):
    """What happens to load balancers without a Service."""

    IGNORE = "ignore"
    """No search for them."""
    REPORT = "report"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Which Services are served, how many at a time, and how often they are checked."""

    workers: int | None = optional(
        "concurrent-service-syncs",
        INT32,
        1,
        "Maximum number of Services reconciled at a time; not set: no limit.",
        section=_SECTION,
        check=at_least_one,
        configz="ServiceController.ConcurrentServiceSyncs",
    )
    """None: chosen by the controller."""
    listed_classes: tuple[str, ...] = setting(
        "service-classes",
        STRINGS,
        (),
        "Load balancer classes served besides pileus.dev/<provider>; '-' excludes Services "
        "without a class.",
        section=_OURS,
    )
    drift_period: float = setting(
        "service-drift-period",
        DURATION,
        600.0,
        "Period of full checks of every load balancer and of the search for orphans. "
        "0: no full checks.",
        details="With 0 the search for orphans has a period of 10m.",
        section=_OURS,
        check=not_negative,
    )
    """Average seconds between two full checks of a load balancer; 0: none."""
    drain_cordoned: bool = switch(
        "service-drain-cordoned", "Remove cordoned nodes from load balancers.", section=_OURS
    )
    orphans: Policy = choice(
        "service-orphans",
        Policy.REPORT,
        "Action for load balancers tagged with this cluster that have no Service: "
        "ignore, report or delete.",
        details="ignore: no search for them. delete: after two checks, a few at a time.",
        section=_OURS,
    )
    trusted_namespaces: tuple[str, ...] = setting(
        "trusted-namespaces",
        STRINGS,
        (),
        "Namespaces whose Services may use load balancers and addresses in the cloud that were not "
        "created for them; '*': all.",
        details="Such as pileus.dev/adopt of a load balancer that was created manually, or shared "
        "with a Service of another namespace.",
        section=_OURS,
    )

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of `--service-classes`."""
        return tuple(name for name in self.listed_classes if name != NO_DEFAULT_CLASS)

    @property
    def serves_default(self) -> bool:
        """Whether Services without a class are served."""
        return NO_DEFAULT_CLASS not in self.listed_classes

    @property
    def sweep_period(self) -> float:
        """Seconds between two searches for orphans."""
        return self.drift_period or SWEEP_PERIOD

    def problems(self, config: Config) -> Iterator[str]:
        for name in self.trusted_namespaces:
            if name != "*" and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
                yield f"trusted-namespaces: {quote(name)} must be the name of a namespace, or '*'"
        for name in self.classes:
            if not re.fullmatch(r"[^\s/]+/[^\s/]+", name):
                yield (
                    f"service-classes: {quote(name)} must be a name such as example.com/fast, or "
                    "'-'"
                )
        clouds = config[CloudSettings].clouds
        if self.classes and len(clouds) > 1:
            yield (
                f"--service-classes={','.join(self.classes)} does not say which of the clouds "
                f"{', '.join(cloud.name for cloud in clouds)} serves them: list classes per cloud "
                "in the list clouds in the file of --config"
            )
