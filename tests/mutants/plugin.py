"""A pytest plugin (`-p tests.mutants.plugin`) that plants the mutant named in the environment."""

from tests.mutants.mutant import chosen, plant
from tests.mutants.suite import MUTANTS

for _each in MUTANTS:
    if _each.name == chosen():
        plant(_each)
