"""`pileus local keys|clusters|quota|fault …`."""

from pathlib import Path

from pileus.cli.arguments import Argument, Given, UsageError
from pileus.cloud.model import SshKey
from pileus.suggest import did_you_mean
from pileus_lab.cli.local_commands.command import Command, Shown, command, pairs
from pileus_lab.local.api import Api
from pileus_lab.local.http_api import OPERATIONS
from pileus_lab.local.model.account import (
    ERRORS,
    AddFault,
    AddKey,
    DeleteCluster,
    ListClusters,
    ListFaults,
    ListKeys,
    PutCluster,
    RemoveFault,
    RemoveKey,
    SetQuota,
    ShowQuota,
)
from pileus_lab.local.model.records import Fault, FaultKind, Key

KEY_COLUMNS = ("user", "kind", "fingerprint")
FAULT_COLUMNS = ("id", "kind", "where", "rate", "times", "what")


async def _list_keys(_: Given, api: Api) -> Shown:
    keys = (await api.call(ListKeys())).items
    rows = [(key.user, key.public_key.split()[0], fingerprint(key)) for key in keys]
    return Shown(value=keys, columns=KEY_COLUMNS, rows=rows, text="No keys.")


def fingerprint(key: Key) -> str:
    """The fingerprint as ssh-keygen shows it."""
    return SshKey(key.user, key.public_key).fingerprint


async def _add_key(given: Given, api: Api) -> Shown:
    wanted = AddKey(user=given.text("user"), public_key=_key(given.text("key")))
    key = await api.call(wanted)
    return Shown(value=key, text=f"{key.user} may log in with {fingerprint(key)}.")


async def _remove_key(given: Given, api: Api) -> Shown:
    user, text = given.text("user"), _key(given.text("key"))
    await api.call(RemoveKey(user=user, public_key=text))
    return Shown(value=user, text=f"{user} may no longer log in with that key.")


def _key(text: str) -> str:
    """Returns the key, or the content of the file of that name."""
    if " " in text:
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read a public key from {text}: {error}") from error


async def _list_clusters(_: Given, api: Api) -> Shown:
    clusters = (await api.call(ListClusters())).items
    rows = [(cluster.name, cluster.master) for cluster in clusters]
    return Shown(value=clusters, columns=("name", "master"), rows=rows, text="No clusters.")


async def _create_cluster(given: Given, api: Api) -> Shown:
    cluster = await api.call(PutCluster(name=given.text("name"), master=given.text("master")))
    return Shown(value=cluster, text=f"Cluster {cluster.name} is at {cluster.master}.")


async def _delete_cluster(given: Given, api: Api) -> Shown:
    await api.call(DeleteCluster(name=given.text("name")))
    return Shown(value=given.text("name"), text=f"Cluster {given.text('name')} is unknown now.")


async def _list_quota(_: Given, api: Api) -> Shown:
    usage = (await api.call(ShowQuota())).items
    rows = [(one.name, str(one.used), str(one.limit)) for one in usage]
    return Shown(value=usage, columns=("name", "used", "limit"), rows=rows)


async def _set_quota(given: Given, api: Api) -> Shown:
    limits: dict[str, int] = {}
    for name, text in pairs(given, "limit").items():
        if not text.isascii() or not text.isdigit():
            raise UsageError(f'quota {name} must be a whole number, not "{text}"')
        limits[name] = int(text)
    await api.call(SetQuota(limits=limits))
    return await _list_quota(given, api)


async def _list_faults(_: Given, api: Api) -> Shown:
    faults = (await api.call(ListFaults())).items
    rows = [_fault_row(fault) for fault in faults]
    return Shown(value=faults, columns=FAULT_COLUMNS, rows=rows, text="No faults.")


def _fault_row(fault: Fault) -> tuple[str, ...]:
    what = {
        FaultKind.ERROR: fault.error,
        FaultKind.LOST: fault.error,
        FaultKind.LATENCY: f"{fault.seconds:g} s",
        FaultKind.STALE: f"{fault.seconds:g} s old",
        FaultKind.THROTTLE: f"retry after {fault.seconds:g} s",
        FaultKind.PARTIAL: f"{fault.share:.0%} missing",
    }[fault.kind]
    times = "no end" if fault.times is None else str(fault.times)
    return (fault.id, fault.kind.value, fault.where, f"{fault.rate:g}", times, what)


async def _add_fault(given: Given, api: Api) -> Shown:
    where = given.text("where")
    if "*" not in where and "?" not in where and where not in OPERATIONS:
        raise UsageError(f'no operation "{where}" to fail{did_you_mean(where, OPERATIONS)}')
    wanted = AddFault(
        kind=FaultKind(given.text("kind")),
        where=where,
        rate=given.real("rate"),
        times=given.number("times"),
        seconds=given.real("seconds"),
        error=given.text("error"),
        share=given.real("share"),
    )
    fault = await api.call(wanted)
    return Shown(value=fault, columns=FAULT_COLUMNS, rows=[_fault_row(fault)])


async def _remove_fault(given: Given, api: Api) -> Shown:
    await api.call(RemoveFault(fault=given.text("id")))
    return Shown(value=given.text("id"), text=f"Removed {given.text('id')}.")


USER = Argument(name="user", text="User name on the instances.")
KEY = Argument(name="key", text="An OpenSSH public key, or a file that holds one.")
KEY_VERBS: dict[str, Command] = {
    "list": command("List the SSH keys of all instances.", _list_keys),
    "add": command("Add a user's SSH key to all instances.", _add_key, USER, KEY),
    "remove": command("Remove a user's key from all instances.", _remove_key, USER, KEY),
}
CLUSTER = Argument(name="name", text="The cluster's name.")
CLUSTER_VERBS: dict[str, Command] = {
    "list": command("List the clusters that the cloud knows.", _list_clusters),
    "create": command(
        "Register a cluster.",
        _create_cluster,
        CLUSTER,
        Argument(name="master", text="Address of its control plane."),
    ),
    "delete": command("Unregister a cluster.", _delete_cluster, CLUSTER),
}
QUOTA_VERBS: dict[str, Command] = {
    "list": command("List limits and usage.", _list_quota),
    "set": command(
        "Change limits.",
        _set_quota,
        Argument(name="limit", text="Limit as NAME=NUMBER.", many=True),
    ),
}
FAULT_VERBS: dict[str, Command] = {
    "list": command("List the rules by which the cloud fails.", _list_faults),
    "add": command(
        "Make calls to the cloud fail. Calls of `pileus local` do not fail.",
        _add_fault,
        Argument(name="kind", text="Kind of fault.", choices=tuple(FaultKind)),
        Argument(
            name="--where",
            text="Operations that fail, such as instances.list or balancers.*",
            default="*",
        ),
        Argument(name="--rate", text="Probability at each call.", kind=float, default=1.0),
        Argument(name="--times", text="Maximum number of faults; default: unlimited.", kind=int),
        Argument(name="--seconds", text="Delay or age in seconds.", kind=float, default=1.0),
        Argument(
            name="--error",
            text="Error of the kinds error and lost.",
            choices=ERRORS,
            default=ERRORS[0],
        ),
        Argument(name="--share", text="Share of a list that is missing.", kind=float, default=0.5),
    ),
    "remove": command(
        "Remove a rule.", _remove_fault, Argument(name="id", text="ID of the rule, or all.")
    ),
}
