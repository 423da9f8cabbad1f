"""Flags about looking inside the process, and about moving controllers between two managers."""

from pileus.settings.flags import Flag, Group, switch
from pileus.settings.kinds import STRING

PROFILING = switch(
    "profiling", "Serve profiling pages under /debug/ on the secure port.", default=True
)
CONTENTION_PROFILING = switch("contention-profiling", "Accepted for compatibility; no effect.")
DEBUGGING = Group("Debugging", (PROFILING, CONTENTION_PROFILING))

ENABLE_LEADER_MIGRATION = switch(
    "enable-leader-migration",
    "Hold a second Lease for controllers that migrate between two managers.",
)
LEADER_MIGRATION_CONFIG = Flag(
    "leader-migration-config",
    STRING,
    "",
    "File that assigns controllers to managers; empty: the built-in list.",
)
MIGRATION = Group("Leader-migration", (ENABLE_LEADER_MIGRATION, LEADER_MIGRATION_CONFIG))
