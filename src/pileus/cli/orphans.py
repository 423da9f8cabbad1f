"""`pileus orphans`: lists, and with --delete deletes, load balancers without a Service.

Volumes without PersistentVolume and claim are listed only.

Exit codes: 0 none (left) · 2 some · 1 an error, or some could not be deleted.
"""

from collections.abc import Iterator, Mapping, Sequence

from pileus.app.errors import CommandFailed
from pileus.app.orphans import (
    Orphan,
    OrphanReport,
    OrphanVolume,
    delete_orphans,
    find_orphans,
)
from pileus.app.plan import read_only_context
from pileus.cli.cluster_command import (
    CONTEXT,
    FAILED,
    OUTPUT,
    Command,
    Request,
    Runner,
    json_text,
    run_cluster_command,
)
from pileus.cli.terminal import Ink, Style, Terminal
from pileus.cloud.balancer import Balancer, Owner
from pileus.settings.flags import Group, switch
from pileus.settings.values import Values

FOUND = 2
DELETE = switch("delete", "Delete the listed load balancers, after a confirmation.")
YES = switch("yes", "Delete without a confirmation; for --delete.")
COMMAND = Command(
    "List load balancers that are tagged with this cluster and have no Service. Those of a "
    "Service that the manager does not serve with these flags are listed too, but never deleted. "
    "Load balancers with the tag of another cluster, or without a tag, are ignored. Volumes that "
    "have neither PersistentVolume nor claim are listed too, and never deleted: their data may be "
    "needed.\n\n"
    "Exit codes: 0 none (left), 2 some, 1 an error, or some could not be deleted.",
    Group("Orphans", (CONTEXT, DELETE, YES, OUTPUT), ours=True),
)
KEPT = "kept: it has neither PersistentVolume nor claim, but its data may be needed"
WRITES = frozenset({"balancers.apply"})
VERSION = 1
FEW = 3
"""Up to this number, --yes deletes them even if no load balancer has a Service."""


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(request: Request, run: Runner) -> int:
        found = run(_find(request))
        if not request.as_data:
            terminal.show(as_text(found, Style.of(terminal)))
        failed: Mapping[Owner, str] | None = None
        if found.deletable and request.values[DELETE] and agreed(found, request.values, terminal):
            failed = run(_delete(request, found))
            for owner, why in failed.items():
                terminal.refuse(f"{owner.uid}: {why}")
        if request.as_data:
            terminal.show(request.data(json_text(document(found, failed))))
        elif failed is not None:
            deleted = len(found.deletable) - len(failed)
            terminal.show(f"Deleted {deleted} of {len(found.deletable)}\n")
        return exit_code(found, failed)

    return run_cluster_command(program, COMMAND, arguments, terminal, work)


def exit_code(found: OrphanReport, failed: Mapping[Owner, str] | None) -> int:
    """`failed` is None if nothing was deleted, else what could not be."""
    if failed or found.problems or any(orphan.trouble for orphan in found.orphans):
        return FAILED
    is_left = found.orphans if failed is None else len(found.orphans) > len(found.deletable)
    return FOUND if is_left or found.volumes else 0


async def _find(request: Request) -> OrphanReport:
    async with read_only_context(request.config, request.world) as context:
        return await find_orphans(context)


async def _delete(request: Request, found: OrphanReport) -> Mapping[Owner, str]:
    async with read_only_context(request.config, request.world, may=WRITES) as context:
        return await delete_orphans(context, found.deletable)


def agreed(found: OrphanReport, values: Values, terminal: Terminal) -> bool:
    """Whether they may be deleted. Raises CommandFailed if there is no terminal to ask on."""
    if values[YES]:
        if len(found.deletable) == found.owners > FEW:
            raise CommandFailed(
                f"nothing was deleted: none of the {found.owners} load balancers has a Service. "
                "Check --cluster-id, --kubeconfig and --context; to delete them, run it again "
                "without --yes and confirm"
            )
        return True
    if not terminal.can_ask():
        raise CommandFailed(
            "nothing was deleted: there is no terminal for a confirmation. To delete without one, "
            "add --yes"
        )
    return terminal.agrees(f"Delete {_counted(found.deletable)} of cluster {found.cluster}?")


def as_text(found: OrphanReport, style: Style) -> str:
    return "".join(f"{line}\n" for line in _lines(found, style))


def _lines(found: OrphanReport, style: Style) -> Iterator[str]:
    for orphan in found.orphans:
        yield from (style.inked(line, Ink.BOLD) for line in style.lines(_owner(orphan), 0))
        if orphan.balancer is not None:
            yield from (f"  {line}" for line in style.lines(_described(orphan.balancer), 2))
        for change in () if orphan.service else orphan.changes:
            first, *rest = style.lines(change.summary, 4)
            yield f"  {style.inked(f'{change.effect} {first}', Ink.RED)}"
            yield from (f"    {style.inked(line, Ink.RED)}" for line in rest)
        if orphan.trouble:
            first, *rest = style.message_lines(orphan.trouble, 4)
            yield f"  {style.inked('!', Ink.RED)} {first}"
            yield from (f"    {line}" for line in rest)
        yield ""
    for each in found.volumes:
        yield from (style.inked(line, Ink.BOLD) for line in style.lines(_volume(each), 0))
        yield from (f"  {line}" for line in style.lines(KEPT, 2))
        yield ""
    for problem in found.problems:
        first, *rest = style.message_lines(problem, 2)
        yield f"{style.inked('!', Ink.RED)} {first}"
        yield from (f"  {line}" for line in rest)
    counted = _counted(found.orphans) if found.orphans else "No orphaned load balancers"
    if found.volumes:
        counted += f", {_many(len(found.volumes), 'orphaned volume')}"
    checked = f"(checked {found.owners} tagged with cluster {found.cluster})"
    yield from (style.inked(line, Ink.BOLD) for line in style.lines(f"{counted} {checked}", 0))


def _owner(orphan: Orphan) -> str:
    where = f"Cloud {orphan.cloud}: " if orphan.cloud else ""
    if orphan.service:
        return f"{where}{orphan.service}: not served with these flags, kept"
    return f"{where}Deleted Service with UID {orphan.owner.uid}"


def _counted(orphans: Sequence[Orphan]) -> str:
    return _many(len(orphans), "orphaned load balancer")


def _many(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' if number > 1 else ''}"


def _volume(orphan: OrphanVolume) -> str:
    volume = orphan.volume
    where = f"Cloud {orphan.cloud}: volume" if orphan.cloud else "Volume"
    owner = f", of {volume.owner.uid}" if volume.owner else ""
    return f"{where} {volume.id}: {volume.state}, {volume.size_gib} GiB{owner}"


def _described(balancer: Balancer) -> str:
    addresses = ", ".join(each.ip or each.hostname for each in balancer.ingress) or "no address"
    members = "" if balancer.members is None else f", {balancer.members} members"
    return f"load balancer {balancer.id}: {balancer.state}, {addresses}{members}"


def document(found: OrphanReport, failed: Mapping[Owner, str] | None) -> dict[str, object]:
    return {
        "version": VERSION,
        "cluster": found.cluster,
        "owners": found.owners,
        "orphans": [_document(orphan, failed) for orphan in found.orphans],
        "volumes": [_volume_document(each) for each in found.volumes],
        **({"problems": list(found.problems)} if found.problems else {}),
    }


def _volume_document(orphan: OrphanVolume) -> dict[str, object]:
    volume = orphan.volume
    return {
        **({"cloud": orphan.cloud} if orphan.cloud else {}),
        "id": volume.id,
        "owner": volume.owner.uid if volume.owner else "",
        "state": volume.state.value,
        "sizeGiB": volume.size_gib,
    }


def _document(orphan: Orphan, failed: Mapping[Owner, str] | None) -> dict[str, object]:
    balancer = orphan.balancer
    cloud = {"cloud": orphan.cloud} if orphan.cloud else {}
    return {
        **cloud,
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
