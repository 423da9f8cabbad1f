"""`pileus orphans`: load balancers of this cluster that no Service has; deletes them if told to.

Exit codes: 0 there are none (any more) · 2 there are some · 1 an error, or not all are gone.
"""

from collections.abc import Iterator, Mapping, Sequence

from pileus.app.flags import Group, Values, switch
from pileus.app.orphans import Orphan, Orphanage, delete_orphans, find_orphans
from pileus.app.planning import looking
from pileus.cli.arguments import UsageError
from pileus.cli.looking import FAILED, OUTPUT, Asked, Manual, Runs, look
from pileus.cli.plan_json import written
from pileus.cli.style import Ink, Style
from pileus.cli.terminal import Terminal
from pileus.cloud.balancer import Balancer, Owner

FOUND = 2
DELETE = switch("delete", "Delete them, after asking.")
YES = switch("yes", "With --delete: do not ask.")
MANUAL = Manual(
    "",
    "List load balancers that are marked as this cluster's and have no Service, or one that the\n"
    "manager does not serve with these flags (which is never deleted). What has another mark, or\n"
    "none, is not looked at.\n\n"
    "Exit codes: 0 there are none (any more), 2 there are some, 1 an error, or not all are gone.",
    Group("Orphans", (DELETE, YES, OUTPUT), ours=True),
)
WRITES = frozenset({"balancers.apply"})
VERSION = 1
FEW = 3
"""So many may all be orphans without raising doubts."""


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(asked: Asked, run: Runs) -> int:
        if asked.words:
            raise UsageError(f'{program} takes no arguments, got "{asked.words[0]}"')
        found = run(_find(asked))
        if not asked.as_json:
            terminal.out.write(as_text(found, Style.of(terminal)))
        failed: Mapping[Owner, str] | None = None
        if found.deletable and asked.values[DELETE] and agreed(found, asked.values, terminal):
            failed = run(_delete(asked, found))
            terminal.err.writelines(f"Error: {it.uid}: {why}\n" for it, why in failed.items())
        if asked.as_json:
            terminal.out.write(written(document(found, failed)))
        elif failed is not None:
            gone = len(found.deletable) - len(failed)
            terminal.out.write(f"{gone} of {len(found.deletable)} are gone\n")
        return exit_code(found, failed)

    return look(program, MANUAL, arguments, terminal, work)


def exit_code(found: Orphanage, failed: Mapping[Owner, str] | None) -> int:
    """`failed` is None if nothing was deleted, else what could not be."""
    if failed or any(orphan.trouble for orphan in found.orphans):
        return FAILED
    is_left = found.orphans if failed is None else len(found.orphans) > len(found.deletable)
    return FOUND if is_left else 0


async def _find(asked: Asked) -> Orphanage:
    async with looking(asked.config, asked.world) as post:
        return await find_orphans(post)


async def _delete(asked: Asked, found: Orphanage) -> Mapping[Owner, str]:
    async with looking(asked.config, asked.world, may=WRITES) as post:
        return await delete_orphans(post, found.deletable)


def agreed(found: Orphanage, values: Values, terminal: Terminal) -> bool:
    """Whether they may be deleted. Errors: `UsageError`, if nobody can be asked."""
    if values[YES]:
        if len(found.deletable) == found.owners > FEW:
            raise UsageError(
                f"nothing was deleted: none of the {found.owners} has a Service, which looks like "
                "another cluster's id or kubeconfig",
                "without --yes you are asked, and may agree all the same",
            )
        return True
    if not terminal.can_ask():
        raise UsageError(
            "nothing was deleted: there is no terminal to ask on", "--yes deletes without asking"
        )
    return terminal.agrees(f"Delete {_counted(found.deletable)}?")


def as_text(found: Orphanage, style: Style) -> str:
    return "".join(f"{line}\n" for line in _lines(found, style))


def _lines(found: Orphanage, style: Style) -> Iterator[str]:
    for orphan in found.orphans:
        yield style.inked(_owner(orphan), Ink.BOLD)
        if orphan.balancer is not None:
            yield f"  {_described(orphan.balancer)}"
        for change in () if orphan.service else orphan.changes:
            yield f"  {style.inked(f'{change.effect} {change.summary}', Ink.RED)}"
        if orphan.trouble:
            yield f"  {style.inked('!', Ink.RED)} {orphan.trouble}"
        yield ""
    counted = _counted(found.orphans) if found.orphans else "No load balancer without a Service"
    yield style.inked(
        f"{counted}, of {found.owners} with the mark of cluster {found.cluster}", Ink.BOLD
    )


def _owner(orphan: Orphan) -> str:
    if orphan.service:
        return f"{orphan.service}, which is not served with these flags: it stays"
    return f"Service with UID {orphan.owner.uid}, which is gone"


def _counted(orphans: Sequence[Orphan]) -> str:
    many = len(orphans)
    return f"{many} load balancer{'s' if many > 1 else ''} without a Service"


def _described(balancer: Balancer) -> str:
    addresses = ", ".join(each.ip or each.hostname for each in balancer.ingress) or "no address"
    members = "" if balancer.members is None else f", {balancer.members} members"
    return f"load balancer {balancer.id}: {balancer.state}, {addresses}{members}"


def document(found: Orphanage, failed: Mapping[Owner, str] | None) -> dict[str, object]:
    return {
        "version": VERSION,
        "cluster": found.cluster,
        "owners": found.owners,
        "orphans": [_document(orphan, failed) for orphan in found.orphans],
    }


def _document(orphan: Orphan, failed: Mapping[Owner, str] | None) -> dict[str, object]:
    balancer = orphan.balancer
    return {
        "uid": orphan.owner.uid,
        "service": orphan.service,
        "id": balancer.id if balancer else "",
        "state": balancer.state.value if balancer else "",
        "addresses": [each.ip or each.hostname for each in balancer.ingress] if balancer else [],
        "changes": [
            {"action": change.effect.name.lower(), "summary": change.summary}
            for change in orphan.changes
        ],
        "deleted": failed is not None and not orphan.service and orphan.owner not in failed,
        "trouble": orphan.trouble or (failed or {}).get(orphan.owner, ""),
    }
