"""`/metrics/slis`: how the health checks have fared, in a registry of its own that can be reset."""

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge

from pileus.server import answer
from pileus.server.checkup import Outcome
from pileus.server.health import Kind
from pileus.server.metrics import exposing
from pileus.server.router import Routes


class Slis:
    """Two metrics on the outcomes of health checks, written whenever somebody asks for health."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._now = Gauge(
            "kubernetes_healthcheck",
            "[STABLE] 1 if the health check succeeded when last asked, else 0",
            ("name", "type"),
            registry=self.registry,
        )
        self._count = Counter(
            "kubernetes_healthchecks_total",
            "[STABLE] Outcomes of all health checks",
            ("name", "type", "status"),
            registry=self.registry,
        )

    def observe(self, kind: Kind, outcome: Outcome) -> None:
        status = "success" if outcome.failure is None else "error"
        self._now.labels(outcome.name, kind).set(outcome.failure is None)
        self._count.labels(outcome.name, kind, status).inc()

    def reset(self) -> None:
        self._now.clear()
        self._count.clear()


def sli_routes(slis: Slis) -> Routes:
    show = exposing(slis.registry)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "DELETE":
            return await show(request)
        slis.reset()
        return answer.text("metrics reset\n")

    return Routes({"/metrics/slis": handle})
