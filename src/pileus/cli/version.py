"""`pileus version`: which Pileus this is, and which Kubernetes it speaks for."""

from collections.abc import Sequence

from pileus import version
from pileus.cli.terminal import Terminal


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    if arguments:
        return terminal.refuse(f'"{program}" takes no arguments, got "{arguments[0]}"')
    terminal.out.write(f"Pileus {version.PILEUS}\nKubernetes {version.KUBERNETES}\n")
    return 0
