"""All that the HTTPS port shows: the paths of a controller manager, put together."""

from dataclasses import dataclass

from pileus.server.build import this_build
from pileus.server.configz import Configz, configz_routes, version_routes
from pileus.server.debug import SetVerbosity, debug_routes
from pileus.server.health import Health, health_routes
from pileus.server.metrics import add_process_metrics, metrics_routes
from pileus.server.router import Routes
from pileus.server.slis import Slis, sli_routes
from pileus.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Surface:
    """What the process lets others see of itself."""

    health: Health
    metrics: Metrics
    configz: Configz
    set_verbosity: SetVerbosity


def surface_routes(surface: Surface, *, profiling: bool) -> Routes:
    """Every path there is. To be called once: it adds the process's own metrics."""
    build, slis = this_build(), Slis()
    add_process_metrics(surface.metrics.registry, build)
    routes = (
        health_routes(surface.health, slis.observe)
        | metrics_routes(surface.metrics.registry)
        | sli_routes(slis)
        | configz_routes(surface.configz)
        | version_routes(build)
    )
    return routes | debug_routes(surface.set_verbosity) if profiling else routes
