"""What is wrong with the configuration of an API server's access, found before anything starts."""

import os


class InvalidConfiguration(Exception):
    """The program cannot start like this; the text names file and field, and what to do."""


def reason(error: OSError) -> str:
    """Why the system refused, without the path (the message around it has that already)."""
    return os.strerror(error.errno) if error.errno else str(error)
