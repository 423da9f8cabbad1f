"""What users are told about routes: events on their nodes, one per trouble, not one per try."""

from collections.abc import Iterable, Mapping

from pileus.cloud.errors import CloudError
from pileus.cloud.model import Route
from pileus.controllers.route.plan import Standing
from pileus.kube.model.core_v1 import Node
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.nodes import about_node
from pileus.telemetry.log import Log

log = Log(__name__)

FAILED = "FailedToCreateRoute"
REFUSED = "PodCIDRNotRouted"


class Telling:
    """Says a thing again if its words change, or an hour has passed."""

    def __init__(self, notices: ObjectEvents) -> None:
        self._notices = notices
        self._said: dict[tuple[str, str], str] = {}

    def of(self, standing: Standing, failed: Mapping[Route, CloudError]) -> None:
        node = standing.node
        errors = {route: failed[route] for route in standing.create if route in failed}
        self._say(node, FAILED, could_not_create(node, errors) if errors else "")
        self._say(node, REFUSED, refused(standing) if standing.problems else "")

    def deleted(self, routes: Iterable[Route], failed: Mapping[Route, CloudError]) -> None:
        for route in routes:
            where = {"destination": route.destination, "target": route.target}
            if route in failed:
                log.error("Could not delete a route", error=failed[route], route=where)
            else:
                log.info("Deleted a route that no node wants", route=where)

    def keep(self, nodes: Iterable[Node]) -> None:
        """Forget what was said of all nodes but these."""
        abouts = [about_node(node) for node in nodes]
        self._notices.keep(abouts)
        uids = {about.uid for about in abouts}
        self._said = {key: text for key, text in self._said.items() if key[0] in uids}

    def _say(self, node: Node, reason: str, text: str) -> None:
        about, key = about_node(node), (node.metadata.uid, reason)
        if text != self._said.get(key, ""):
            self._notices.forget(about, reason)
        if not text:
            self._said.pop(key, None)
            return
        self._said[key] = text
        self._notices.warn(about, reason, text)


def could_not_create(node: Node, errors: Mapping[Route, CloudError]) -> str:
    """As the Go framework says it, but without a duration, which kept events from merging."""
    ranges = ",".join(route.destination for route in errors)
    why = "; ".join(dict.fromkeys(str(error) or type(error).__name__ for error in errors.values()))
    uid, name = node.metadata.uid, node.metadata.name
    return shortened(f"Could not create route {uid} {ranges} for node {name}: {why}")


def refused(standing: Standing) -> str:
    why = "; ".join(standing.problems)
    return shortened(f"No route for node {standing.node.metadata.name}: {why}")
