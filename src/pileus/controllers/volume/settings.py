"""Settings of the volume controller."""

from dataclasses import dataclass

from pileus.settings.checks import positive
from pileus.settings.declare import setting
from pileus.settings.kinds import DURATION


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSettings:
    """How often all volumes are checked."""

    check_period: float = setting(
        "volume-check-period",
        DURATION,
        600.0,
        "Period of the check of all volumes for missing ones, lost attachments and orphans.",
        section="Pileus: volumes",
        check=positive,
    )
    """Seconds."""
