"""`pileus version`: the versions of Pileus and of Kubernetes, and the commit."""

from collections.abc import Sequence

from pileus import version
from pileus.cli.arguments import Help, Usage, UsageError, answered, parse
from pileus.cli.terminal import Terminal

USAGE = Usage("Print the Pileus version and commit, and the Kubernetes version it implements.")


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    try:
        parse(program, USAGE, arguments)
    except (Help, UsageError) as error:
        return answered(error, program, terminal)
    terminal.out.write(
        f"Pileus {version.PILEUS} (commit {version.commit()})\nKubernetes {version.KUBERNETES}\n"
    )
    return 0
