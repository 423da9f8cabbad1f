"""Defects of plans: each makes `pileus plan` wrong about one kind of write."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pileus.app import plan
from pileus.cloud.balancer import Effect, Part
from pileus.cloud.errors import CloudError
from pileus.controllers.ipam import controller as ipam
from pileus.controllers.lifecycle import preview as lifecycle
from pileus.controllers.node import lines as node_lines
from pileus.controllers.node import preview as node
from pileus.controllers.node.observation import Facts
from pileus.controllers.route import controller as route
from pileus.controllers.route.controller import RouteController
from pileus.controllers.service import preview as service
from pileus.controllers.service.preview import ServicePreview
from pileus.controllers.service.steps import RemoveFinalizer, Report, Wait
from pileus.controllers.ssh_keys import preview as keys
from pileus.kube.errors import KubeError
from pileus.objects.nodes import about_node
from pileus.objects.preview import Place, Planned, Trouble
from pileus_lab.local import balancer_plan
from tests.simulation.planting import Patch

Line = Planned | Trouble


def _without(owner: Any, name: str, is_hidden: Callable[[Planned], bool]) -> Patch:
    """Hides the lines of a generator that tell of a change."""
    sound = getattr(owner, name)

    def lines(*args: Any, **named: Any) -> Iterable[Line]:
        for line in sound(*args, **named):
            if not (isinstance(line, Planned) and is_hidden(line)):
                yield line

    return owner, name, lines


def _says(text: str) -> Callable[[Planned], bool]:
    return lambda line: any(text in one for one in (line.summary, *line.details))


def no_initialization() -> Iterable[Patch]:
    yield _without(node, "lines", _says("initialized"))


def wrong_provider_id() -> Iterable[Patch]:
    sound = node.plan

    def plan(seen: Any, now: Any) -> Any:
        facts = seen.answer
        if isinstance(facts, Facts):
            seen = replace(seen, answer=replace(facts, provider_id=f"{facts.provider_id}x"))
        return sound(seen, now)

    yield node, "plan", plan


def no_refreshment() -> Iterable[Patch]:
    yield node, "plan_refresh", lambda seen, now, sync_labels: ()


def no_report_of_stuck_nodes() -> Iterable[Patch]:
    yield node_lines, "_report", lambda node, report: ()


def no_node_deletion() -> Iterable[Patch]:
    yield _without(lifecycle, "rendered", lambda line: line.effect is Effect.DELETE)


def no_shutdown_taint() -> Iterable[Patch]:
    yield _without(lifecycle, "rendered", _says("/shutdown"))


def no_second_look() -> Iterable[Patch]:
    sound = lifecycle.plan

    def plan(seen: Any, guards: Any, now: Any, *, confirmed: bool = False) -> Any:
        return sound(seen, guards, now)

    yield lifecycle, "plan", plan


def no_finalizer() -> Iterable[Patch]:
    yield _without(service, "lines", _says("with service.kubernetes.io"))


def no_balancer() -> Iterable[Patch]:
    yield _without(
        service, "lines", lambda line: line.place is Place.CLOUD and line.effect is Effect.CREATE
    )


def no_members() -> Iterable[Patch]:
    yield _without(service, "lines", lambda line: line.summary.startswith("member"))


def members_as_records() -> Iterable[Patch]:
    sound = balancer_plan._member_changes

    def members(*args: Any) -> Iterable[Any]:
        return (replace(change, part=Part.RECORD) for change in sound(*args))

    yield balancer_plan, "_member_changes", members


def no_status() -> Iterable[Patch]:
    yield _without(service, "lines", _says("status.loadBalancer.ingress"))


def no_report_of_failing_services() -> Iterable[Patch]:
    yield service, "lines", _without_reports(service.lines)


def _without_reports(sound: Any) -> Any:
    def lines(about: Any, steps: Any, *args: Any, **named: Any) -> Iterable[Line]:
        for step in steps:
            if isinstance(step, Report | Wait):
                steps = [one for one in steps if one is not step]
        yield from sound(about, steps, *args, **named)

    return lines


def no_withdrawal() -> Iterable[Patch]:
    sound = service.plan

    def plan(rules: Any, seen: Any) -> Any:
        steps = sound(rules, seen)
        return () if any(isinstance(step, RemoveFinalizer) for step in steps) else steps

    yield service, "plan", plan


def no_orphans() -> Iterable[Patch]:
    async def orphans(*_: object) -> Sequence[Line]:
        return ()

    yield ServicePreview, "_of_sweep", orphans


def _lines_of(module: Any, is_hidden: Callable[[Planned], bool]) -> Patch:
    sound = module.lines

    def lines(*args: Any) -> Sequence[Line]:
        return [
            line for line in sound(*args) if not (isinstance(line, Planned) and is_hidden(line))
        ]

    return module, "lines", lines


def mark_alone() -> Iterable[Patch]:
    sound = balancer_plan._adoption

    def adoption(*args: Any) -> tuple[balancer_plan.Change, ...]:
        return sound(*args)[:1]

    yield balancer_plan, "_adoption", adoption


def no_route_deletion() -> Iterable[Patch]:
    yield _lines_of(route, lambda line: line.effect is Effect.DELETE)


def no_new_route() -> Iterable[Patch]:
    yield _lines_of(route, lambda line: line.summary.startswith("route") and line.effect == "+")


def no_range() -> Iterable[Patch]:
    yield _lines_of(ipam, lambda _: True)


def no_new_key() -> Iterable[Patch]:
    yield _without(keys, "rendered", lambda line: line.effect is Effect.CREATE)


def no_withdrawn_key() -> Iterable[Patch]:
    yield _without(keys, "rendered", lambda line: line.effect is Effect.DELETE)


def always_empty() -> Iterable[Patch]:
    yield plan, "without_aftermath", lambda lines: ()


def never_done() -> Iterable[Patch]:
    sound = node.lines

    def lines(seen: Any, steps: Any) -> Iterable[Line]:
        yield from sound(seen, steps)
        yield Planned(
            about=about_node(seen),
            place=Place.CLUSTER,
            effect=Effect.UPDATE,
            summary="labels",
            details=('metadata.labels[example.com/never]: "yes"',),
        )

    yield node, "lines", lines


def plan_by_doing() -> Iterable[Patch]:
    async def preview(self: RouteController, scope: object) -> Sequence[Line]:
        with suppress(ExceptionGroup, CloudError, KubeError):
            await (await self._reconciler()).reconcile("all")
        return ()

    yield RouteController, "preview", preview
    yield plan, "read_only", lambda cloud, but: cloud
