"""Rights in the cluster, declared by the code that uses them. RBAC rules are generated from them.

A right that is declared and never used, or used and not declared, fails a test
(`tests/unit/app/test_rights.py`, and on a real API server `tests/real/test_rights.py`).
"""

from pileus.dataclass import dataclass

KUBE_SYSTEM = "kube-system"


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One RBAC rule, and what it is for."""

    purpose: str
    """The comment above the rule in generated manifests."""
    verbs: tuple[str, ...]
    resources: tuple[str, ...] = ()
    group: str = ""
    """API group of the resources; empty: the core group."""
    names: tuple[str, ...] = ()
    """The only objects that it applies to; empty: all."""
    namespace: str = ""
    """The only namespace that it applies to; empty: all, and cluster-scoped objects."""
    planning: tuple[str, ...] = ()
    """The verbs that a plan (`--dry-run`) needs too; informers need no mention."""
    urls: tuple[str, ...] = ()
    """Paths outside of the resource API, instead of resources."""

    def rule(self) -> dict[str, list[str]]:
        """Returns the rule of a Role or ClusterRole."""
        if self.urls:
            return {"nonResourceURLs": list(self.urls), "verbs": list(self.verbs)}
        named = {"resourceNames": list(self.names)} if self.names else {}
        what = {"apiGroups": [self.group], "resources": list(self.resources)}
        return {**what, **named, "verbs": list(self.verbs)}


def events(purpose: str) -> Right:
    """Returns the right to publish events. `patch` counts repeated events."""
    return Right(purpose=purpose, resources=("events",), verbs=("create", "patch"))
