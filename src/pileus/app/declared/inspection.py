"""Flags about looking inside the process, and about moving controllers between two managers."""

from pileus.app.flags import Flag, Group, switch
from pileus.app.kinds import STRING

PROFILING = switch(
    "profiling", "Serve the profiling pages under /debug/ on the secure port.", default=True
)
CONTENTION_PROFILING = switch("contention-profiling", "Accepted for compatibility; without effect.")
DEBUGGING = Group("Debugging", (PROFILING, CONTENTION_PROFILING))

ENABLE_LEADER_MIGRATION = switch(
    "enable-leader-migration",
    "Take a second Lease for the controllers that are moving here from another manager.",
)
LEADER_MIGRATION_CONFIG = Flag(
    "leader-migration-config",
    STRING,
    "",
    "File that says which controller belongs to which manager; empty: the built-in list.",
)
MIGRATION = Group("Leader-migration", (ENABLE_LEADER_MIGRATION, LEADER_MIGRATION_CONFIG))
