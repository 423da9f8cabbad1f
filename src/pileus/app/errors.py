"""The errors that end the program, with their exit codes."""


class CommandFailed(Exception):
    """The command cannot be carried out, such as with a wrong configuration. Exit code 1."""


class Fatal(Exception):
    """The program cannot start here: no cloud or no API server. Exit code 255."""


class NoApiServer(Fatal):
    """The API server did not become healthy in time."""

    untrusted = False
    """Whether its certificate is not trusted."""
