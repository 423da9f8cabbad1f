"""Play simulation seeds, with a mutant planted: exit 1 if one fails. Started by `trial.py`.

python -m tests.mutants.seeds CLOUD SCENARIO FIRST LAST
"""

import os
import sys
from pathlib import Path

from tests.mutants.mutant import FAILED, chosen, plant
from tests.mutants.suite import MUTANTS


def main(cloud: str, scenario: str, first: int, last: int) -> int:
    for mutant in MUTANTS:
        if mutant.name == chosen():
            plant(mutant)
    from pileus_lab.simulation.clouds.loading import load
    from pileus_lab.simulation.play import play
    from pileus_lab.simulation.scenario import SCENARIOS
    from pileus_lab.simulation.schedule import draw

    make_cloud = load(cloud)
    for seed in range(first, last + 1):
        violation = play(draw(seed, SCENARIOS[scenario]), make_cloud).violation
        if violation is not None:
            Path(os.environ[FAILED]).write_text(f"{seed}: {violation.invariant}", encoding="utf-8")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
