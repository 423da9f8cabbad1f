"""Events, kept instead of sent."""

from dataclasses import dataclass, field

from pileus.kube.model.core_v1 import ObjectReference


@dataclass(frozen=True, slots=True)
class Told:
    about: ObjectReference
    kind: str
    reason: str
    message: str


@dataclass
class FakeEvents:
    told: list[Told] = field(default_factory=list[Told])

    def record(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        self.told.append(Told(about, kind, reason, message))

    def reasons(self, name: str = "") -> list[str]:
        """Of all events in their order, or of those about one object."""
        return [each.reason for each in self.told if name in {"", each.about.name}]

    def messages(self, reason: str) -> list[str]:
        return [each.message for each in self.told if each.reason == reason]

    def lines(self) -> list[tuple[str, str, str, str]]:
        """Name of the object, kind, reason and message of each."""
        return [(each.about.name, each.kind, each.reason, each.message) for each in self.told]
