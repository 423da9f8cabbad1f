"""All checks, and the diagnosis that they make of an observation. Pure."""

import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from pileus.cloud.finding import Finding, Severity
from pileus.dataclass import dataclass
from pileus.doctor import (
    api_checks,
    cloud_checks,
    leftover_checks,
    manager_checks,
    node_checks,
    volume_checks,
)
from pileus.doctor.check import Check, error, warning
from pileus.doctor.observation import NotRead, Observation, Unread
from pileus.objects.rights import Right
from pileus.telemetry.log import Log
from pileus.version import INSTALLED

log = Log(__name__)

CHECKS = (
    Check("api-server", "API server", api_checks.api_server),
    Check("clock", "Clock", api_checks.clock),
    Check("rights", "Rights of the manager", api_checks.rights),
    Check("unneeded-rights", "Unneeded rights", api_checks.unneeded_rights),
    Check("webhooks", "Webhooks", api_checks.webhooks),
    Check("leader-election", "Leader election", manager_checks.election),
    Check("other-managers", "Other managers", manager_checks.other_managers),
    Check("nodes", "Nodes", node_checks.nodes),
    Check("volumes", "Volumes", volume_checks.volumes),
    Check("leftovers", "Leftovers", leftover_checks.leftovers),
    Check("cluster-id", "Cluster ID", cloud_checks.cluster_id),
    Check("cloud", "Cloud", cloud_checks.clouds),
)
ACCOUNT_PREFIX = "system:serviceaccount:"
OUTSIDE = (
    "use the kubeconfig of an administrator. Do not grant these rights to the account of the "
    "manager, which does not need them"
)
RECONCILE = "--dry-run=client --output=yaml | kubectl auth reconcile -f -"
"""Adds what is missing: the role may exist, with other rights and for other users."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One check and its result."""

    check: Check
    summary: str = ""
    findings: tuple[Finding, ...] = ()
    unread: Unread | None = None
    """The part without which it was not made."""
    is_skipped: bool = False
    """Whether there was nothing to check."""

    @property
    def is_made(self) -> bool:
        return self.unread is None and not self.is_skipped


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The results of all checks, and the findings about checks that were not made."""

    checked: tuple[Checked, ...]
    obstacles: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return (*(one for each in self.checked for one in each.findings), *self.obstacles)

    def count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    def with_fixes(self, change: Callable[[str], str]) -> "Diagnosis":
        """Returns the diagnosis with each fix changed."""

        def changed(found: tuple[Finding, ...]) -> tuple[Finding, ...]:
            return tuple(replace(each, fix=change(each.fix)) for each in found)

        checked = tuple(replace(each, findings=changed(each.findings)) for each in self.checked)
        return Diagnosis(checked, changed(self.obstacles))

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was found that has to be fixed."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)


def diagnose(seen: Observation, checks: Iterable[Check] = CHECKS) -> Diagnosis:
    """Makes every check. One that fails does not affect the others, and is itself a finding."""
    checked = tuple(_made(check, seen) for check in checks)
    return Diagnosis(checked, tuple(_obstacles(seen, checked, seen.unread)))


def _made(check: Check, seen: Observation) -> Checked:
    try:
        verdict = check.run(seen)
    except NotRead as missing:
        return Checked(check, unread=missing.part)
    except Exception as problem:
        log.exception("Check failed", error=problem, check=check.id)
        found = error(
            "check-failed",
            check.title,
            f"the check ended with {type(problem).__name__}: {problem}",
            reason="this is a bug in Pileus",
            fix="report it with the output of: pileus doctor -v=2",
        )
        return Checked(check, findings=(found,))
    return Checked(check, verdict.summary, verdict.findings, is_skipped=verdict.is_skipped)


def _obstacles(
    seen: Observation, checked: Iterable[Checked], unread: tuple[Unread, ...]
) -> Iterator[Finding]:
    """Yields one finding for all missing rights, and one for each other reason."""
    checked = tuple(checked)
    forbidden = [part for part in unread if part.missing]
    if forbidden:
        rights = [part.missing for part in forbidden if part.missing]
        yield warning(
            "doctor-right-missing",
            f"user {seen.user}" if seen.user else "your user",
            f"may not {'; '.join(dict.fromkeys(map(needed, rights)))}",
            reason=_not_checked(checked, forbidden),
            fix=OUTSIDE if is_manager(seen) else grant(rights, seen.user),
        )
    by_reason: dict[str, list[Unread]] = {}
    for part in unread:
        if not part.missing:
            by_reason.setdefault(part.why, []).append(part)
    for why, parts in by_reason.items():
        yield error(
            "not-readable",
            ", ".join(part.what for part in parts),
            why,
            reason=_not_checked(checked, parts),
            fix=parts[0].fix,
        )


def _not_checked(checked: Iterable[Checked], parts: Iterable[Unread]) -> str:
    missing = tuple(parts)
    titles = ", ".join(each.check.title for each in checked if each.unread in missing)
    return f"not checked: {titles}" if titles else "details of other findings are missing"


def is_manager(seen: Observation) -> bool:
    """Whether the doctor runs with the account of the manager, which needs none of its rights."""
    namespace, _, name = seen.expected.account.partition("/")
    user = seen.user.removeprefix(ACCOUNT_PREFIX)
    return user != seen.user and (user == f"{namespace}:{name}" or user.endswith(f":{INSTALLED}"))


def needed(right: Right) -> str:
    group = f".{right.group}" if right.group else ""
    where = f" in {right.namespace}" if right.namespace else ""
    what = ", ".join(f"{name}{group}" for name in right.resources) or ", ".join(right.urls)
    return f"{', '.join(right.verbs)} {what}{where}"


def grant(rights: Iterable[Right], user: str) -> str:
    """Returns the commands with which an administrator grants the rights to the user."""
    by_verbs: dict[tuple[str, ...], dict[str, None]] = {}
    for right in rights:
        group = f".{right.group}" if right.group else ""
        names = dict.fromkeys(f"{name}{group}" for name in right.resources)
        by_verbs.setdefault(right.verbs, {}).update(names)
    return " && ".join(
        command
        for verbs, resources in by_verbs.items()
        for command in _role(f"pileus-doctor-{'-'.join(verbs)}", verbs, resources, user)
    )


def _role(name: str, verbs: Iterable[str], resources: Iterable[str], user: str) -> tuple[str, str]:
    rules = f"--verb={','.join(verbs)} --resource={','.join(resources)}"
    bound = f"--clusterrole={name} {_subject(user)}"
    return (
        f"kubectl create clusterrole {name} {rules} {RECONCILE}",
        f"kubectl create clusterrolebinding {name} {bound} {RECONCILE}",
    )


def _subject(user: str) -> str:
    if user.startswith(ACCOUNT_PREFIX):
        return f"--serviceaccount={user.removeprefix(ACCOUNT_PREFIX)}"
    return f"--user={shlex.quote(user or 'USER')}"
