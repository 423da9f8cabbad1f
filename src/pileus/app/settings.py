"""Settings of the process, and the list of all settings classes."""

from typing import Any

from pileus.admission.settings import WebhookSettings
from pileus.app import version_flag
from pileus.app.registry import CONTROLLERS
from pileus.cloud.choice import CloudSettings
from pileus.dataclass import dataclass
from pileus.kube.settings import ClientSettings
from pileus.objects.settings import ClusterSettings
from pileus.runtime.settings import LeaderElectionSettings
from pileus.server.settings import ServerSettings
from pileus.settings.checks import not_negative
from pileus.settings.config import Config, table_of
from pileus.settings.declare import setting, switch
from pileus.settings.feature_gates import Gates
from pileus.settings.kinds import DURATION, STRING, STRINGS
from pileus.settings.values import Values
from pileus.telemetry.journal_settings import JournalSettings
from pileus.telemetry.settings import LogSettings

_HOUR = 3600.0
_GENERIC, _DEBUGGING, _MIGRATION = "Generic", "Debugging", "Leader-migration"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """Which controllers run, and how they start."""

    controllers: tuple[str, ...] = setting(
        "controllers",
        STRINGS,
        ("*",),
        "Controllers to run: '*' enables all that are on by default, 'foo' enables foo, "
        "'-foo' disables it; the first match counts.",
        details=CONTROLLERS.described(),
        section=_GENERIC,
    )
    """As the user wrote them; `Controllers.enabled` reads them."""
    start_interval: float = setting(
        "controller-start-interval",
        DURATION,
        0.0,
        "Pause after the start of each controller.",
        section=_GENERIC,
        check=not_negative,
        configz="Generic.ControllerStartInterval",
    )
    min_resync_period: float = setting(
        "min-resync-period",
        DURATION,
        12 * _HOUR,
        "Resync period of all objects; the actual period is 1 to 2 times this value.",
        section=_GENERIC,
        check=not_negative,
        configz="Generic.MinResyncPeriod",
    )
    node_sync_period: float = setting(
        "node-sync-period",
        DURATION,
        0.0,
        "No effect.",
        deprecated="it has no effect",
        section=_GENERIC,
        configz="KubeCloudShared.NodeSyncPeriod",
    )
    dry_run: bool = switch(
        "dry-run",
        "Report planned changes to the cloud and the cluster without applying them.",
        section="Pileus",
    )

    def configz(self) -> dict[str, object]:
        return {"Generic.Controllers": [CONTROLLERS.resolve(entry) for entry in self.controllers]}


@dataclass(frozen=True, slots=True, kw_only=True)
class DebuggingSettings:
    """What the secure port serves under /debug/."""

    profiling: bool = switch(
        "profiling",
        "Serve profiling pages under /debug/ on the secure port.",
        default=True,
        section=_DEBUGGING,
        configz="Generic.Debugging.enableProfiling",
    )
    contention_profiling: bool = switch(
        "contention-profiling",
        "Accepted for compatibility; no effect.",
        section=_DEBUGGING,
        configz="Generic.Debugging.enableContentionProfiling",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderMigrationSettings:
    """Whether controllers migrate between two managers."""

    enabled: bool = switch(
        "enable-leader-migration",
        "Hold a second Lease for controllers that migrate between two managers.",
        section=_MIGRATION,
        configz="Generic.LeaderMigrationEnabled",
    )
    config_file: str = setting(
        "leader-migration-config",
        STRING,
        "",
        "File that assigns controllers to managers; empty: the built-in list.",
        section=_MIGRATION,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """What the command prints instead of running, and its configuration file."""

    config_file: str = setting(
        "config",
        STRING,
        "",
        "YAML or JSON file with flags by name. Environment variables (PILEUS_<FLAG_NAME>) and "
        "flags override it.",
        section="Pileus",
    )
    version: version_flag.VersionRequest = setting(
        "version",
        version_flag.VERSION,
        version_flag.VersionRequest(),
        "Print the version and exit; =raw prints all version fields; =vX.Y.Z-... overrides "
        "the reported version.",
        only_flag=True,
        section="Global",
    )
    help: bool = switch(
        "help",
        "Print this text and exit.",
        short="h",
        only_flag=True,
        section="Global",
    )


PROCESS: tuple[type[Any], ...] = (
    CommandSettings,
    LeaderElectionSettings,
    ManagerSettings,
    ClientSettings,
    ServerSettings,
    WebhookSettings,
    Gates,
    DebuggingSettings,
    LeaderMigrationSettings,
    LogSettings,
    JournalSettings,
    ClusterSettings,
    CloudSettings,
)
"""The settings classes of the process, in the order in which their problems are reported."""
SETTINGS = tuple(dict.fromkeys((*PROCESS, *(controller.settings for controller in CONTROLLERS))))
TABLE = table_of(SETTINGS)
"""Every flag of the program."""


def build_config(values: Values) -> Config:
    """Returns the settings of all classes. Does not check whether they make sense together."""
    return Config(SETTINGS, values)
