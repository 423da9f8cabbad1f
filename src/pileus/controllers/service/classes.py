"""Which Services are ours to serve, by their class. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from pileus.kube.model.core_v1 import Service

LOAD_BALANCER = "LoadBalancer"
PREFIX = "pileus.dev/"
NO_DEFAULT_CLASS = "-"
"""In `--service-classes`: Services without a class are not served."""


@dataclass(frozen=True, slots=True)
class Classes:
    names: frozenset[str]
    """The `loadBalancerClass`es that we serve."""
    default: bool = True
    """Whether we also serve Services that name none."""

    @classmethod
    def of(cls, provider: str, names: Iterable[str] = (), *, default: bool = True) -> "Classes":
        """Those named, and the provider's own, which is always served."""
        return cls(frozenset({*names, f"{PREFIX}{provider}"}), default)

    def serve(self, service: Service) -> bool:
        """Whether it wants a balancer, and wants it from us."""
        return is_load_balancer(service) and self._name(service)

    def may_have_served(self, service: Service) -> bool:
        """Whether a finalizer on it, that says nothing of who set it, counts as ours.

        A Service of another class is another's. One that is of the type no more names no class:
        then it is ours if those without a class are.
        """
        return self._name(service) if is_load_balancer(service) else self.default

    def has(self, name: str) -> bool:
        """Whether Services of that class are ours; "": those that name none."""
        return name in self.names if name else self.default

    def _name(self, service: Service) -> bool:
        return self.has(class_of(service))


def class_of(service: Service) -> str:
    """What it names; "" if it names none."""
    return (service.spec and service.spec.load_balancer_class) or ""


def is_load_balancer(service: Service) -> bool:
    return service.spec is not None and service.spec.type == LOAD_BALANCER
