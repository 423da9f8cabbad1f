"""The laboratory's commands, which `pileus` finds by the entry points `pileus.commands`."""
