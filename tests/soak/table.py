"""The soak's outcome as a table."""

from collections.abc import Iterator, Mapping

from tests.soak.soak import Outcome


def table(outcome: Outcome) -> str:
    return "\n".join(_lines(outcome))


def _lines(outcome: Outcome) -> Iterator[str]:
    size = outcome.size
    yield f"Soak: {size.nodes} nodes, {size.services} Services, seed {outcome.seed}"
    yield from _section("seconds", {k: f"{v:.1f}" for k, v in outcome.took.items()})
    yield from _section("churn", dict(sorted(outcome.churn.items())))
    yield f"  {'all changes':<40} {outcome.churn.total():>10}"
    yield from _section("manager ended by", outcome.ended)
    yield from _section("API writes", dict(sorted(outcome.used.api_writes.items())))
    yield f"  {'all reads':<40} {outcome.used.api_reads:>10}"
    yield from _section("cloud calls", dict(sorted(outcome.used.cloud_calls.items())))
    first, middle, last = outcome.memory
    when = {"start": first, "middle": middle, "end": last}
    yield from _section(
        "memory of the manager, MiB", {name: f"{value:.0f}" for name, value in when.items()}
    )
    yield from _section(
        "in the end",
        {
            "nodes": outcome.nodes,
            "Services": outcome.services,
            "deletions of nodes approved by hand": outcome.approved,
            "balancers, others' included": outcome.balancers,
            "balancers visited": outcome.visited,
            "orphans": outcome.orphans,
        },
    )


def _section(title: str, rows: Mapping[str, object]) -> Iterator[str]:
    yield title
    for name, value in rows.items():
        yield f"  {name:<40} {value!s:>10}"
