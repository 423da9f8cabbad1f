"""What must hold of SSH keys in the end."""

from collections.abc import Iterator

from pileus.controllers.ssh_keys.descriptor import SSH_KEYS
from pileus_lab.apiserver.tree import text, words
from pileus_lab.simulation.invariants.facts import Facts
from pileus_lab.simulation.stage.operators import KEYS_KNOWN, KEYS_NAME, NONE, public_key

KNOWN = frozenset(map(public_key, range(KEYS_KNOWN)))


def machines_have_the_wanted_keys(facts: Facts) -> Iterator[str]:
    """Each wanted key is there, and of ours no other, where it is known what is wanted."""
    entries = _entries(facts)
    nodes = [one for one in facts.cluster.objects("nodes") if facts.machine_of(one)]
    if not facts.runs(SSH_KEYS.canonical) or entries is None or not nodes:
        return
    wanted = {(user, key) for user, key in entries.items() if key in KNOWN}
    is_whole = all(key in KNOWN or key == NONE for key in entries.values())
    keys = facts.account.truth().keys.values()
    there = {(one.user, one.public_key) for one in keys}
    ours = {(one.user, one.public_key) for one in keys if one.cluster == facts.cluster_id}
    for user, key in sorted(wanted - there):
        yield f"user {user} cannot log in with {key}"
    for user, key in sorted(ours - wanted) if is_whole else ():
        yield f"user {user} can still log in with {key}"


def _entries(facts: Facts) -> dict[str, str] | None:
    """What people want; None: they do not say it."""
    for one in facts.cluster.objects("configmaps"):
        if text(one, "metadata", "name") == KEYS_NAME:
            return dict(words(one, "data"))
    return None
