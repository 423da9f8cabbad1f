"""Feature gates: the known names, and which are on.

Most belong to the API-server library inside the Go program. They are taken and have no effect
here; a name that is in no list is refused, because it is a mistake.
"""

from collections.abc import Mapping
from enum import Enum

from pileus.dataclass import dataclass
from pileus.settings.declare import setting
from pileus.settings.kinds import SWITCHES, Kind
from pileus.suggest import did_you_mean


class Stage(Enum):
    ALPHA = "ALPHA"
    BETA = "BETA"
    STABLE = "GA"
    DEPRECATED = "DEPRECATED"


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    stage: Stage
    default: bool
    locked: bool = False


ALL_ALPHA = Gate("AllAlpha", Stage.ALPHA, default=False)
ALL_BETA = Gate("AllBeta", Stage.BETA, default=False)
WATCH_BASED_ROUTES = Gate(
    "CloudControllerManagerWatchBasedRoutesReconciliation", Stage.ALPHA, default=True
)
"""Off by default in the Go program: there a route that fails would not be tried again."""
WEBHOOK = Gate("CloudControllerManagerWebhook", Stage.ALPHA, default=False)
RELEASE_ON_EXIT = Gate(
    "ControllerManagerReleaseLeaderElectionLockOnExit", Stage.ALPHA, default=False
)
LOGGING_ALPHA = Gate("LoggingAlphaOptions", Stage.ALPHA, default=False)
LOGGING_BETA = Gate("LoggingBetaOptions", Stage.BETA, default=True)
CONTEXTUAL_LOGGING = Gate("ContextualLogging", Stage.BETA, default=True)

OURS = (
    ALL_ALPHA,
    ALL_BETA,
    WATCH_BASED_ROUTES,
    WEBHOOK,
    RELEASE_ON_EXIT,
    LOGGING_ALPHA,
    LOGGING_BETA,
    CONTEXTUAL_LOGGING,
)
"""The gates that mean something to a cloud-controller-manager."""

_LIBRARY_ALPHA_OFF = """
    APIServerWebhookAuthenticationToken APIServingWithRoutine CBORServingAndStorage
    ConsistentListFromCacheSkipTimeoutFallback ShardedListAndWatch StorageVersionAPI
"""
_LIBRARY_BETA_OFF = "CoordinatedLeaderElection"
_LIBRARY_BETA_ON = """
    APIResponseCompression APIServerIdentity AllowParsingUserUIDFromCertAuth
    AllowUnsafeMalformedObjectDeletion ComponentFlagz ComponentStatusz ConcurrentWatchObjectDecode
    ConstrainedImpersonation DeclarativeValidationBeta DetectCacheInconsistency EtcdRangeStream
    ExcludeAdmissionWebhookVirtualResources ListFromCacheSnapshot
    ManifestBasedAdmissionControlConfig NativeHistograms OpenAPIEnums RemoteRequestHeaderUID
    SizeBasedListCostEstimate StorageVersionHash
    StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
    UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy WatchList
    WatchListCompression WebhookRoundTripLoadBalancing
"""

LIBRARY = (
    *(Gate(name, Stage.ALPHA, default=False) for name in _LIBRARY_ALPHA_OFF.split()),
    *(Gate(name, Stage.BETA, default=False) for name in _LIBRARY_BETA_OFF.split()),
    *(Gate(name, Stage.BETA, default=True) for name in _LIBRARY_BETA_ON.split()),
    Gate("MutatingAdmissionPolicy", Stage.STABLE, default=True),
    Gate("DeclarativeValidation", Stage.STABLE, default=True, locked=True),
    Gate("WatchCacheInitializationPostStartHook", Stage.STABLE, default=True, locked=True),
    Gate("AggregatedDiscoveryRemoveBetaType", Stage.DEPRECATED, default=True, locked=True),
    Gate("DeclarativeValidationTakeover", Stage.DEPRECATED, default=False, locked=True),
    Gate("KMSv1", Stage.DEPRECATED, default=False),
    Gate("SeparateCacheWatchRPC", Stage.DEPRECATED, default=False, locked=True),
)
"""The gates of the Go program's API-server library in v1.37, without effect here."""

KNOWN = {gate.name: gate for gate in (*OURS, *LIBRARY)}


def parse_gates(text: str) -> Mapping[str, bool]:
    """Read `A=true,B=false`; ValueError for unknown names and for gates that cannot be moved."""
    asked = SWITCHES.parse(text)
    complaints = [_complaint(name, on=on) for name, on in asked.items()]
    found = [complaint for complaint in complaints if complaint]
    if found:
        raise ValueError(found[0] if len(found) == 1 else f"[{', '.join(found)}]")
    return asked


def _complaint(name: str, *, on: bool) -> str:
    gate = KNOWN.get(name)
    if gate is None:
        return f"unrecognized feature gate: {name}{did_you_mean(name, KNOWN)}"
    if gate.locked and on != gate.default:
        wanted, kept = str(on).lower(), str(gate.default).lower()
        return f"cannot set feature gate {name} to {wanted}, feature is locked to {kept}"
    return ""


GATES: Kind[Mapping[str, bool]] = Kind(
    name=SWITCHES.name,
    parse=parse_gates,
    render=SWITCHES.render,
    join=SWITCHES.join,
    natural=SWITCHES.natural,
)


def described() -> str:
    """The gates that can be moved, one per line, as help shows them."""
    return "\n".join(
        f"{gate.name}=true|false ({gate.stage.value} - default={str(gate.default).lower()})"
        for _, gate in sorted(KNOWN.items())
        if gate.stage in {Stage.ALPHA, Stage.BETA}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Which feature gates are enabled."""

    asked: Mapping[str, bool] = setting(
        "feature-gates",
        GATES,
        {},
        "Feature gates as NAME=true or NAME=false, comma-separated.",
        details="Known:\n" + described(),
        section="Generic",
    )

    def enabled(self, gate: Gate) -> bool:
        """Returns the gate's own value if it was set, else that of its group, else the default."""
        if gate.name in self.asked:
            return self.asked[gate.name]
        group = {Stage.ALPHA: ALL_ALPHA, Stage.BETA: ALL_BETA}.get(gate.stage)
        if group is not None and group is not gate and group.name in self.asked:
            return self.asked[group.name]
        return gate.default
