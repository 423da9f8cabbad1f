"""The two ways in which the program ends because something is wrong outside it."""


class CommandFailed(Exception):
    """What was asked for cannot be done: a wrong configuration, a lost lease. Exit code 1."""


class Fatal(Exception):
    """The program cannot start in this place: no cloud, no API server. Exit code 255."""
