"""To which of several clouds a node belongs."""

from collections.abc import Callable, Mapping

from pileus.cloud.interface import Cloud
from pileus.cloud.model import NodeRef
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import provider_id_of, reference
from pileus.objects.ownership import Ownership, Whose
from pileus.runtime.memory import PerObject


@dataclass(frozen=True, slots=True)
class Claim:
    """To which of several clouds a node belongs, as far as can be said without a lookup."""

    owner: str = ""
    candidates: tuple[str, ...] = ()
    """Clouds of which one may have the node's machine; only a lookup can decide."""
    contested: tuple[str, ...] = ()
    """Clouds whose providers all say that the node is theirs."""


def claim(ref: NodeRef, clouds: Mapping[str, Cloud]) -> Claim:
    """Decides by the scheme of the provider ID, then by the providers' own answers (`owns`).

    Of two clouds with the same scheme, the one that owns the node wins. Without a scheme every
    cloud is a candidate, unless its provider says that the node is not its own. Pure, if `owns` is.
    """
    scheme, separator, _ = ref.provider_id.partition("://")
    answers = {name: cloud.owns(ref) if cloud.owns else None for name, cloud in clouds.items()}
    able = [name for name, cloud in clouds.items() if cloud.instances is not None]
    of_scheme = [name for name in able if separator and clouds[name].name == scheme]
    pool = of_scheme or [
        name for name in clouds if answers[name] or (not separator and name in able)
    ]
    claimed = tuple(name for name in pool if answers[name])
    if claimed:
        return Claim(owner=claimed[0]) if len(claimed) == 1 else Claim(contested=claimed)
    left = tuple(name for name in pool if answers[name] is None)
    return Claim(owner=left[0]) if of_scheme and len(left) == 1 else Claim(candidates=left)


class NodeClouds:
    """To which cloud each node belongs, in a manager with several clouds.

    Nodes that only a lookup can assign are given to a cloud by `assign`. Until then, a node without
    a provider ID belongs to none; one with a provider ID may belong to every candidate.
    """

    def __init__(self, clouds: Mapping[str, Cloud], *, caretaker: str) -> None:
        """`caretaker` is the cloud that handles nodes that no cloud has a machine for.

        If that cloud has no machines at all, the first one with machines does.
        """
        self.clouds = dict(clouds)
        self._caretaker = caretaker
        self._owners = PerObject[str, str]("nodes/clouds")
        """The last known owner of each node, by its name: it may register again."""

    @property
    def caretaker(self) -> str:
        able = [name for name, cloud in self.clouds.items() if cloud.instances is not None]
        return self._caretaker if self._caretaker in able or not able else able[0]

    def claim(self, node: Node) -> Claim:
        return claim(reference(node), self.clouds)

    def owner(self, node: Node) -> str:
        """Returns the cloud of the node; "" if it is not known or contested."""
        found = self.claim(node)
        if found.owner:
            self._owners[node.metadata.name] = found.owner
        known = self._owners.get(node.metadata.name, "")
        return found.owner or (known if known in found.candidates else "")

    def is_undecided(self, node: Node) -> bool:
        """Whether a lookup has to decide."""
        return bool(self.claim(node).candidates) and not self.owner(node)

    def assign(self, name: str, owner: str) -> bool:
        """Remember the result of a lookup. Returns whether it is new."""
        is_new = self._owners.get(name) != owner
        self._owners[name] = owner
        return is_new

    def forget(self, name: str) -> None:
        self._owners.pop(name, None)

    def whose_in_any(self, node: Node) -> Ownership:
        """Returns FOREIGN if the node belongs to none of the clouds."""
        found = self.claim(node)
        is_any = found.owner or found.candidates or found.contested
        return Ownership.OURS if is_any else Ownership.FOREIGN

    def is_of_another(self, cloud: str) -> Callable[[Node], bool]:
        """Returns the question whether a node provably belongs to another one of the clouds.

        By its provider ID or its provider; what a lookup did not find in one cloud is no proof.
        """
        return lambda node: self.claim(node).owner not in {"", cloud}

    def whose_in(self, cloud: str) -> Whose:
        """Returns the question whether a node belongs to that cloud."""

        def whose(node: Node) -> Ownership:
            found, owner = self.claim(node), self.owner(node)
            if owner:
                is_proven = bool(found.owner) or bool(provider_id_of(node))
                ours = Ownership.OURS if is_proven else Ownership.UNPROVEN
                return ours if owner == cloud else Ownership.FOREIGN
            may_be = bool(provider_id_of(node)) and cloud in found.candidates
            return Ownership.UNPROVEN if may_be else Ownership.FOREIGN

        return whose
