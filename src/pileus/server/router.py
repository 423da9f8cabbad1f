"""Finds the handler of a path: exact paths first, then the longest prefix.

The path is not normalized or redirected after its authorization.
"""

from collections.abc import Mapping
from dataclasses import field

from pileus.dataclass import dataclass
from pileus.http.server import Handler

Handlers = Mapping[str, Handler]


@dataclass(frozen=True, slots=True)
class Routes:
    """Handlers by exact path, and by prefix (which ends in a slash)."""

    exact: Handlers = field(default_factory=dict[str, Handler])
    below: Handlers = field(default_factory=dict[str, Handler])
    public: Handlers = field(default_factory=dict[str, Handler])
    """By exact path: served to everyone who can reach the port. Nothing about the cluster."""

    def __or__(self, other: "Routes") -> "Routes":
        return Routes(
            {**self.exact, **other.exact},
            {**self.below, **other.below},
            {**self.public, **other.public},
        )

    def find(self, path: str) -> Handler | None:
        if path in self.exact:
            return self.exact[path]
        fitting = [prefix for prefix in self.below if path.startswith(prefix)]
        return self.below[max(fitting, key=len)] if fitting else None
