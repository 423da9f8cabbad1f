"""What a plan shows because of the declared effect of a changed option (`OnChange`). Pure."""

from pileus.cloud.balancer import Balancer, Change, Effect, Part, Wish
from pileus.cloud.options import OnChange, Option, Options
from pileus.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Replacement:
    """A change that is shown as a replacement, because an option that changed is RECREATE."""

    change: Change
    names: tuple[str, ...]
    """Of the options."""

    @property
    def effect(self) -> Effect:
        return Effect.REPLACE

    @property
    def summary(self) -> str:
        return f"{self.change.summary} (recreated: {', '.join(self.names)} changed)"

    @property
    def part(self) -> Part:
        return self.change.part


def changed_options(
    declared: Options | None, wish: Wish, balancer: Balancer | None
) -> tuple[Option[object], ...]:
    """Returns the options whose value differs from the one in effect, where the cloud shows it."""
    in_effect = balancer.options if balancer else None
    if declared is None or in_effect is None:
        return ()
    before = declared.parse(in_effect).values
    after = declared.parse(wish.options).values
    return tuple(each for each in declared.changed(before, after) if each.name in in_effect)


def as_declared(
    changes: tuple[Change, ...], changed: tuple[Option[object], ...]
) -> tuple[Change, ...]:
    """Returns the changes, with a replacement among them if an option says that there is one.

    A provider that plans a replacement itself knows best where it is.
    """
    names = tuple(each.name for each in changed if each.on_change is OnChange.RECREATE)
    effects = {change.effect for change in changes}
    if not names or Effect.REPLACE in effects or effects >= {Effect.CREATE, Effect.DELETE}:
        return changes
    first = next((each for each in changes if each.part is Part.WHOLE), None)
    return tuple(Replacement(each, names) if each is first else each for each in changes)


def original(change: Change) -> Change:
    """Returns the provider's own change."""
    return change.change if isinstance(change, Replacement) else change


def without_effect(changed: tuple[Option[object], ...]) -> tuple[str, ...]:
    """Returns a warning for each option that is only used at creation and was changed later."""
    return tuple(
        f"{each.name} is only used when the load balancer is created: the change has no effect"
        for each in changed
        if each.on_change is OnChange.CREATE_ONLY
    )
