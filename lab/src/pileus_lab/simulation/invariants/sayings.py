"""What managers must not say of themselves: secrets, and exceptions that they do not expect."""

from collections.abc import Iterator

from pileus_lab.simulation.invariants.facts import Facts
from pileus_lab.simulation.setup import SECRET


def secrets_stay_secret(facts: Facts) -> Iterator[str]:
    """What a manager was given in confidence is in no trace, event, object, log or metric."""
    if any(SECRET in line for line in facts.trace.lines):
        yield "a secret is in the trace"
    for resource in ("events", "nodes", "services"):
        if SECRET in str(facts.cluster.objects(resource)):
            yield f"a secret is in {resource}"
    for where in facts.sayings.leaks():
        yield f"a secret is in {where}"


def no_manager_caught_an_unexpected_exception(facts: Facts) -> Iterator[str]:
    """Passes and rounds are isolated, so that a bug in them may go unnoticed otherwise."""
    yield from facts.sayings.unexpected()
