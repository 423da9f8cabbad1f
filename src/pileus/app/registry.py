"""The controllers of this manager. A new controller is one line in `CONTROLLERS`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pileus.admission import descriptor as admission
from pileus.controllers.ipam import descriptor as ipam
from pileus.controllers.lifecycle import descriptor as lifecycle
from pileus.controllers.node import descriptor as node
from pileus.controllers.route import descriptor as route
from pileus.controllers.service import descriptor as service
from pileus.controllers.ssh_keys import descriptor as ssh_keys
from pileus.controllers.volume import descriptor as volume
from pileus.controllers.volume_labels import descriptor as volume_labels
from pileus.objects.descriptor import ControllerDescriptor, ControllerNames

AnyDescriptor = ControllerDescriptor[Any]


class Controllers:
    """A list of controllers, and how `--controllers` selects from it."""

    def __init__(self, *descriptors: AnyDescriptor) -> None:
        self._descriptors = descriptors
        self._by_alias = {each.names.alias: each.names.canonical for each in descriptors}

    def __iter__(self) -> Iterator[AnyDescriptor]:
        return iter(self._descriptors)

    def with_also(self, *more: AnyDescriptor) -> "Controllers":
        """Returns these controllers and `more`."""
        return Controllers(*self._descriptors, *more)

    @property
    def names(self) -> tuple[ControllerNames, ...]:
        return tuple(each.names for each in self._descriptors)

    def described(self) -> str:
        """Returns the names of all controllers and of those that are off by default."""
        everything = sorted(names.canonical for names in self.names)
        off = sorted(names.canonical for names in self.names if names.off_by_default)
        return f"All: {', '.join(everything)}. Disabled by default: {', '.join(off)}."

    def enabled(self, entries: Sequence[str]) -> tuple[AnyDescriptor, ...]:
        """Returns the controllers that `--controllers` enables, in the order of this list."""
        return tuple(each for each in self if self.is_running(each.names, entries))

    def is_running(self, names: ControllerNames, entries: Sequence[str]) -> bool:
        """Returns whether `entries` enable the controller."""
        return self.is_enabled(names.canonical, entries, off_by_default=names.off_by_default)

    def is_enabled(
        self, name: str, entries: Sequence[str], *, off_by_default: bool = False
    ) -> bool:
        """Returns whether `entries` enable `name` (canonical); the first match decides."""
        for entry in map(self.resolve, entries):
            if entry == name:
                return True
            if entry == f"-{name}":
                return False
        return "*" in entries and not off_by_default

    def resolve(self, entry: str) -> str:
        """Returns the entry with an alias replaced by its name; a leading `-` is kept."""
        bare = entry.removeprefix("-")
        return entry.removesuffix(bare) + self._by_alias.get(bare, bare)

    def unknown(self, entries: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
        """Returns the entries that are not in `known`, as written but without their `-`."""
        names = frozenset(known)
        return tuple(
            entry.removeprefix("-")
            for entry in entries
            if entry != "*" and self.resolve(entry).removeprefix("-") not in names
        )


CONTROLLERS = Controllers(
    node.DESCRIPTOR,
    lifecycle.DESCRIPTOR,
    service.DESCRIPTOR,
    route.DESCRIPTOR,
    ipam.DESCRIPTOR,
    ssh_keys.DESCRIPTOR,
    volume.DESCRIPTOR,
    volume_labels.DESCRIPTOR,
    admission.DESCRIPTOR,
)
