"""The store finds what was put in, under every index, and tells exactly what changed."""

from hypothesis import given
from hypothesis import strategies as st

from pileus.kube.model.core_v1 import Node, NodeSpec
from pileus.kube.model.meta import ObjectMeta
from pileus.kube.store import (
    Added,
    Deleted,
    NamespacedName,
    Table,
    Updated,
    changes,
    difference,
    key_of,
)


def node(name: str, *, version: str = "1", uid: str = "u", zone: str = "") -> Node:
    labels = {"zone": zone} if zone else None
    return Node(
        metadata=ObjectMeta(name=name, uid=uid, resource_version=version, labels=labels),
        spec=NodeSpec(provider_id=f"x://{name}"),
    )


def zone_of(item: Node) -> list[str]:
    return [item.metadata.labels["zone"]] if item.metadata.labels else []


nodes = st.builds(
    node,
    st.sampled_from("abcd"),
    version=st.sampled_from(["", "1", "2"]),
    uid=st.sampled_from(["", "u", "v"]),
    zone=st.sampled_from(["", "east", "west"]),
)


def named(found: list[Node]) -> dict[NamespacedName, Node]:
    return {key_of(item): item for item in found}


def test_a_key_reads_as_kubectl_writes_it():
    assert str(NamespacedName("shop", "web")) == "shop/web"
    assert str(NamespacedName("", "worker-1")) == "worker-1"


def test_an_updated_object_moves_in_the_index():
    table = Table({"zone": zone_of})
    old, new = node("a", zone="east"), node("a", version="2", zone="west")

    table.apply(Added(old))
    table.apply(Updated(old, new))

    assert table.by_index("zone", "east") == ()
    assert table.by_index("zone", "west") == (new,)
    assert table.get(NamespacedName("", "a")) == new
    assert len(table) == 1


def test_an_index_function_that_raises_harms_only_its_index():
    def broken(item: Node) -> list[str]:
        raise KeyError("no such label")

    table = Table({"broken": broken, "zone": zone_of})

    table.apply(Added(node("a", zone="east")))
    table.apply(Deleted(node("a", zone="east")))

    assert len(table) == 0
    assert table.by_index("zone", "east") == ()


def test_another_uid_is_another_object():
    old, new = node("a", uid="u"), node("a", uid="v")

    assert changes(old, new) == (Deleted(old), Added(new))


def test_the_same_version_is_no_change():
    assert changes(node("a"), node("a")) == ()
    assert changes(node("a", version=""), node("a", version="")) == ()
    assert changes(node("a", version=""), node("a", version="", zone="x")) != ()


def test_what_does_not_decode_is_not_gone():
    table: Table[Node] = Table()
    for item in (node("a", uid="u"), node("b", uid="u"), node("c", uid="u"), node("d", uid="")):
        table.apply(Added(item))
    unreadable = {
        NamespacedName("", "a"): "u",
        NamespacedName("", "b"): "another",
        NamespacedName("", "d"): "",
    }

    happened = difference(table, {}, unreadable=unreadable)

    assert happened == [Deleted(node("b")), Deleted(node("c"))]


@given(st.lists(nodes), st.lists(nodes))
def test_applying_the_difference_gives_what_was_found(before: list[Node], after: list[Node]):
    table = Table({"zone": zone_of})
    for item in named(before).values():
        table.apply(Added(item))

    for change in difference(table, named(after), unreadable={}):
        table.apply(change)

    versions = {key_of(i): i.metadata.resource_version for i in table.list()}
    wanted = named(after)
    assert set(versions) == set(wanted)
    for key, version in versions.items():
        assert not version or version == wanted[key].metadata.resource_version
    for zone in ("east", "west"):
        inside = {key_of(i) for i in table.list() if zone in zone_of(i)}
        assert {key_of(i) for i in table.by_index("zone", zone)} == inside
