"""What a Service says about who manages it: its class and the manager's annotations. Pure."""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from pileus.cloud.options import (
    ADOPTS,
    CORE_NAMESPACE,
    TEXT,
    Option,
    Options,
    one_of,
)
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Service

MANAGE = f"{CORE_NAMESPACE}manage"
ADOPT = f"{CORE_NAMESPACE}adopt"
ENSURED = f"{CORE_NAMESPACE}ensured"
MEMBERS = f"{CORE_NAMESPACE}members"
WRITTEN = f"{CORE_NAMESPACE}written"
LOAD_BALANCER = "LoadBalancer"
PREFIX = "pileus.dev/"
"""The prefix of a provider's own `loadBalancerClass`."""


class Mode(StrEnum):
    """How much of a Service's load balancer is managed."""

    FULL = "full"
    """Everything: it is created, changed and deleted with the Service."""
    MEMBERS = "members"
    """Its members only. It is never created, deleted or changed otherwise."""
    OBSERVE = "observe"
    """Nothing. Its addresses are published on the Service."""
    NONE = "none"
    """Nothing, and the Service's status is not written either."""

    @property
    def writes(self) -> bool:
        """Whether the mode allows any change in the cloud."""
        return self in {Mode.FULL, Mode.MEMBERS}


class MemberScope(StrEnum):
    """Which nodes may be members of a Service's load balancer."""

    CLOUD = "cloud"
    """The nodes of the cloud that serves the Service."""
    ALL = "all"
    """The nodes of all clouds."""


ANNOTATIONS = Options(
    Option(
        MANAGE,
        one_of(*Mode),
        Mode.FULL.value,
        "How much of the load balancer Pileus manages: everything; its members only; nothing, but "
        "its addresses are published; nothing at all.",
    ),
    Option(
        ADOPT,
        TEXT,
        "",
        "ID of an existing load balancer that this Service takes over. Its namespace must be in "
        "`--trusted-namespaces`, unless the cloud proves that the load balancer is this Service's.",
    ),
    Option(
        MEMBERS,
        one_of(*MemberScope),
        MemberScope.CLOUD.value,
        "Nodes that are members of the load balancer: those of its own cloud, or those of all "
        "clouds.",
    ),
    Option(
        ENSURED,
        TEXT,
        "",
        "Written by Pileus with a provider ported from Go: hashes of what the provider was last "
        "given. Remove it to have the load balancer ensured again.",
    ),
    Option(
        WRITTEN,
        TEXT,
        "",
        "Written by Pileus: the annotations of the provider that Pileus wrote to this Service, "
        "with their values. The ID of a load balancer in such an annotation adopts nothing, also "
        "in a copy of the Service.",
    ),
    namespace=CORE_NAMESPACE,
)


class InvalidAnnotation(Exception):
    """An annotation of ours has an unknown name or value, so nothing is done for the Service."""


def mode_of(service: Service) -> Mode:
    """Returns how much of the Service's load balancer is managed.

    Raises InvalidAnnotation if any annotation of ours is misspelt: it may ask for protection.
    """
    metadata = service.metadata
    given = metadata.annotations or {}
    if problems := ANNOTATIONS.problems(given):
        fixes = " ".join(ANNOTATIONS.corrections(given))
        raise InvalidAnnotation(
            f"{'; '.join(problems)}. Fix: kubectl annotate service {metadata.name} "
            f"--namespace={metadata.namespace} {fixes} --overwrite"
        )
    return Mode(given.get(MANAGE, Mode.FULL))


def adopted_by(service: Service) -> str:
    """Returns the ID of the load balancer that the Service takes over; "" if none."""
    return (annotation(service, ADOPT) or "").strip()


def member_scope(service: Service) -> MemberScope:
    """Returns which nodes may be members; of a misspelt value, the nodes of its own cloud."""
    is_all = annotation(service, MEMBERS) == MemberScope.ALL
    return MemberScope.ALL if is_all else MemberScope.CLOUD


def annotation(service: Service, name: str) -> str | None:
    return (service.metadata.annotations or {}).get(name)


def written_by_us(service: Service) -> Mapping[str, str]:
    """Returns the provider's annotations that Pileus wrote and no one has changed since.

    In a copy of a Service, for example from a backup, they still count as written by Pileus.
    """
    given = service.metadata.annotations or {}
    try:
        written = msgspec.json.decode(given.get(WRITTEN) or "{}", type=dict[str, str])
    except msgspec.DecodeError:
        return {}
    return {name: value for name, value in written.items() if given.get(name) == value}


def annotation_changes(
    service: Service, wanted: Mapping[str, str], declared: Options | None
) -> Mapping[str, str | None]:
    """Returns the annotations to write so that the Service has those that its provider reports.

    None removes one. Only declared annotations for this purpose are written, and none that the
    user set to adopt a load balancer. Values of another cloud of this manager are kept.
    """
    if declared is None:
        return {}
    given, ours = service.metadata.annotations or {}, written_by_us(service)
    of_provider = declared.reported
    adopting = {each.name for each in declared.with_role(ADOPTS)}
    of_user = {name for name in adopting if name in given and name not in ours}
    new = {name: wanted[name] for name in sorted(of_provider - of_user) if name in wanted}
    kept = {name: value for name, value in ours.items() if name not in of_provider}
    after = _record(kept | new)
    changes: dict[str, str | None] = {
        name: None for name in ours if name in of_provider and name not in new
    }
    changes |= {name: value for name, value in new.items() if given.get(name) != value}
    return changes if given.get(WRITTEN) == after else {**changes, WRITTEN: after}


def _record(written: Mapping[str, str]) -> str | None:
    return msgspec.json.encode(written, order="sorted").decode() if written else None


@dataclass(frozen=True, slots=True)
class Classes:
    """The Services that this manager serves, by their `loadBalancerClass`."""

    names: frozenset[str]
    default: bool = True
    """Whether Services without a class are served too."""
    of_others: frozenset[str] = frozenset()
    """Classes that other clouds of this manager serve; "" stands for no class."""

    @classmethod
    def of(
        cls,
        provider: str,
        names: Iterable[str] = (),
        *,
        default: bool = True,
        of_others: Iterable[str] = (),
    ) -> "Classes":
        """Returns the named classes and the provider's own, which is always served."""
        own = frozenset({*names, f"{PREFIX}{provider}"})
        return cls(own, default, frozenset(of_others))

    def serve(self, service: Service) -> bool:
        """Returns whether the Service asks for a load balancer of one of these classes."""
        return is_load_balancer(service) and self._name(service)

    def may_have_served(self, service: Service) -> bool:
        """Returns whether the finalizer on the Service may be ours; other controllers use it too.

        A Service of another class belongs to another controller. A Service that is no longer of
        type LoadBalancer has no class: its finalizer is ours if Services without a class are.
        """
        return self._name(service) if is_load_balancer(service) else self.default

    def has(self, name: str) -> bool:
        """Returns whether Services of that class are served; "" means no class."""
        return name in self.names if name else self.default

    def _name(self, service: Service) -> bool:
        return self.has(class_of(service))


def class_of(service: Service) -> str:
    """Returns the Service's class; "" if it has none."""
    return (service.spec and service.spec.load_balancer_class) or ""


def asked_for(service: Service) -> tuple[object, ...]:
    """Returns what the Service asks for: its spec, and annotations without our own records."""
    given = service.metadata.annotations or {}
    return {k: v for k, v in given.items() if k not in {ENSURED, WRITTEN}}, service.spec


def is_load_balancer(service: Service) -> bool:
    return service.spec is not None and service.spec.type == LOAD_BALANCER
