"""What the parts of this controller work with."""

from dataclasses import dataclass

from pileus.controllers.service.classes import Classes
from pileus.controllers.service.cluster import ClusterServices
from pileus.controllers.service.membership import Membership
from pileus.controllers.service.notes import Notes
from pileus.controllers.service.teller import Teller
from pileus.controllers.service.turns import Turns
from pileus.controllers.service.wish import Wishing
from pileus.controllers.service.workshop import Workshop
from pileus.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    cluster: ClusterServices
    membership: Membership
    workshop: Workshop
    turns: Turns
    notes: Notes
    teller: Teller
    wishing: Wishing
    classes: Classes
    metrics: Metrics
