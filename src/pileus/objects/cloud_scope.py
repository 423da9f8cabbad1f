"""The cloud for which a controller works, in a manager that may have several."""

from collections.abc import Callable

from pileus.cloud.interface import Cloud
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node
from pileus.objects.ownership import Ownership, Whose, whose_by

CLASS_PREFIX = "pileus.dev/"
"""Of load balancer classes: each cloud serves the class with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudScope:
    """One cloud of this manager, as its controllers use it."""

    name: str
    """Unique in this manager: the provider's name, or the name given in the configuration."""
    cloud: Cloud
    """With middleware: batching, budget, fence, metrics and deadlines of its own."""
    whose: Whose
    """Whether a node belongs to this cloud."""
    is_of_another: Callable[[Node], bool] = lambda _: False
    """Whether a node provably belongs to another cloud of this manager."""
    is_default: bool = True
    """Whether it serves Services that name no class."""
    is_only: bool = True
    """Whether it is the manager's only cloud; then it is not part of any name."""
    classes: tuple[str, ...] = ()
    """Load balancer classes that it serves besides its own."""
    other_classes: frozenset[str] = frozenset()
    """Classes that the manager's other clouds serve; "" stands for Services without a class."""

    @property
    def own_classes(self) -> frozenset[str]:
        """Returns all load balancer classes that the cloud serves by its configuration."""
        return frozenset({*self.classes, f"{CLASS_PREFIX}{self.name}"})

    def scoped(self, name: str) -> str:
        """Returns the name of a queue, round, health check or metric in this scope.

        The name itself if there is one cloud, and `name@cloud` if there are several.
        """
        return name if self.is_only or not self.name else f"{name}@{self.name}"


def only_scope(
    cloud: Cloud, classes: tuple[str, ...] = (), *, is_default: bool = True
) -> CloudScope:
    """Returns the scope of a manager's only cloud."""
    return CloudScope(
        name=cloud.name,
        cloud=cloud,
        whose=whose_by(cloud),
        classes=classes,
        is_default=is_default,
    )


def process_scope() -> CloudScope:
    """Returns the scope of controllers that run once in a manager with several clouds."""
    return CloudScope(name="", cloud=Cloud(name=""), whose=lambda _: Ownership.OURS)
