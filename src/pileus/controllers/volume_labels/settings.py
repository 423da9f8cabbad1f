"""Settings of the PersistentVolume label controller: it has no flags of its own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeLabelSettings:
    """Nothing can be set."""
