"""Play simulation seeds with a mutant planted: exit 1 if one fails. Started by `__main__`."""

import sys

from tests.mutants.mutant import chosen, plant
from tests.mutants.suite import MUTANTS


def main(scenario: str, seeds: int) -> int:
    (mutant,) = (each for each in MUTANTS if each.name == chosen())
    plant(mutant)
    from pileus_lab.simulation.clouds.loading import load
    from pileus_lab.simulation.play import play
    from pileus_lab.simulation.scenario import SCENARIOS
    from pileus_lab.simulation.schedule import draw

    make_cloud = load(mutant.cloud)
    for seed in range(1, seeds + 1):
        violation = play(draw(seed, SCENARIOS[scenario]), make_cloud).violation
        if violation is not None:
            sys.stdout.write(f"{scenario} {seed}: {violation.invariant}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
