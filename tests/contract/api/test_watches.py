"""Watches: what they show, from where, and when they end."""

from itertools import islice
from typing import Any

import pytest

from tests.contract.api.http import Api, Namespace, WatchRefused

Event = dict[str, Any]


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in events]


def version_of(namespace: Namespace) -> str:
    listed = namespace.api.get(namespace.path("configmaps")).body
    return listed["metadata"]["resourceVersion"]


def test_a_watch_from_a_version_shows_what_came_after(namespace: Namespace) -> None:
    namespace.config_map("before")
    version = version_of(namespace)
    path = namespace.path("configmaps")

    with namespace.api.watch(path, resourceVersion=version) as events:
        namespace.config_map("one")
        namespace.api.patch(f"{path}/one", {"data": {"a": "1"}})
        namespace.api.delete(f"{path}/one")
        seen = list(islice(events, 3))

    assert told(seen) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]
    assert seen[1]["object"]["data"] == {"a": "1"}
    assert seen[0]["object"]["kind"] == "ConfigMap"
    assert seen[0]["object"]["apiVersion"] == "v1"


def test_a_watch_from_a_past_version_replays(namespace: Namespace) -> None:
    version = version_of(namespace)
    namespace.config_map("one")
    namespace.config_map("two")

    with namespace.api.watch(namespace.path("configmaps"), resourceVersion=version) as events:
        seen = list(islice(events, 2))

    assert told(seen) == [("ADDED", "one"), ("ADDED", "two")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
def test_a_watch_without_a_version_begins_with_what_is_there(
    namespace: Namespace, query: dict[str, str]
) -> None:
    namespace.config_map("one")
    namespace.config_map("two")

    with namespace.api.watch(namespace.path("configmaps"), **query) as events:
        seen = list(islice(events, 2))

    assert sorted(told(seen)) == [("ADDED", "one"), ("ADDED", "two")]


def test_the_deleted_object_carries_the_version_of_its_deletion(namespace: Namespace) -> None:
    made = namespace.config_map("one")
    version = version_of(namespace)
    path = namespace.path("configmaps")

    with namespace.api.watch(path, resourceVersion=version) as events:
        namespace.api.delete(f"{path}/one")
        seen = next(events)

    assert seen["type"] == "DELETED"
    assert int(seen["object"]["metadata"]["resourceVersion"]) > int(
        made["metadata"]["resourceVersion"]
    )


def test_no_change_is_no_event(namespace: Namespace) -> None:
    made = namespace.config_map("one", data={"a": "1"})
    version = version_of(namespace)
    path = namespace.path("configmaps")

    with namespace.api.watch(path, resourceVersion=version) as events:
        namespace.api.put(f"{path}/one", made)
        namespace.api.patch(f"{path}/one", {"data": {"a": "1"}})
        namespace.config_map("two")
        seen = next(events)

    assert told([seen]) == [("ADDED", "two")]


def test_a_selector_turns_changes_into_comings_and_goings(namespace: Namespace) -> None:
    version = version_of(namespace)
    path = namespace.path("configmaps")

    with namespace.api.watch(path, resourceVersion=version, labelSelector="in=yes") as events:
        namespace.config_map("one")
        namespace.api.patch(f"{path}/one", {"metadata": {"labels": {"in": "yes"}}})
        namespace.api.patch(f"{path}/one", {"data": {"a": "1"}})
        namespace.api.patch(f"{path}/one", {"metadata": {"labels": {"in": "no"}}})
        seen = list(islice(events, 3))

    assert told(seen) == [("ADDED", "one"), ("MODIFIED", "one"), ("DELETED", "one")]


def test_one_object_can_be_watched_by_name(namespace: Namespace) -> None:
    version = version_of(namespace)
    path = namespace.path("configmaps")

    with namespace.api.watch(
        path, resourceVersion=version, fieldSelector="metadata.name=two"
    ) as events:
        namespace.config_map("one")
        namespace.config_map("two")
        seen = next(events)

    assert told([seen]) == [("ADDED", "two")]


def test_a_namespace_s_watch_is_deaf_to_others(namespace: Namespace) -> None:
    version = version_of(namespace)

    with namespace.api.watch(namespace.path("configmaps"), resourceVersion=version) as events:
        made = namespace.api.post(
            "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "other-"}}
        ).body["metadata"]["name"]
        namespace.config_map("mine")
        seen = next(events)

    namespace.api.delete(f"/api/v1/namespaces/default/configmaps/{made}")
    assert told([seen]) == [("ADDED", "mine")]


def test_a_watch_ends_when_its_time_is_up(namespace: Namespace) -> None:
    with namespace.api.watch(namespace.path("configmaps"), timeoutSeconds=1) as events:
        seen = list(events)

    assert seen == []


def test_a_bookmark_comes_before_the_end(namespace: Namespace) -> None:
    with namespace.api.watch(
        namespace.path("configmaps"),
        resourceVersion=version_of(namespace),
        allowWatchBookmarks="true",
        timeoutSeconds=5,
    ) as events:
        made = namespace.config_map("one")
        seen = list(events)

    assert {event["type"] for event in seen[1:]} == {"BOOKMARK"}
    assert seen[0]["type"] == "ADDED"
    mark = seen[-1]["object"]
    assert mark["kind"] == "ConfigMap"
    assert int(mark["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])


def test_a_streaming_list_shows_all_and_then_says_so(namespace: Namespace) -> None:
    namespace.config_map("one")
    namespace.config_map("two")

    with namespace.api.watch(
        namespace.path("configmaps"),
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as events:
        seen = list(islice(events, 3))
        namespace.config_map("three")
        after = next(event for event in events if event["type"] != "BOOKMARK")

    assert sorted(told(seen[:2])) == [("ADDED", "one"), ("ADDED", "two")]
    assert seen[2]["type"] == "BOOKMARK"
    annotations = seen[2]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}
    assert told([after]) == [("ADDED", "three")]


@pytest.mark.parametrize(
    "query",
    [
        {"sendInitialEvents": "true"},
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "NotOlderThan"},
    ],
)
def test_a_streaming_list_must_be_asked_for_properly(
    namespace: Namespace, query: dict[str, str]
) -> None:
    with (
        pytest.raises(WatchRefused) as refused,
        namespace.api.watch(namespace.path("configmaps"), **query),
    ):
        pass

    assert (refused.value.answer.status, refused.value.answer.reason) == (422, "Invalid")


def test_a_bad_version_is_refused(namespace: Namespace) -> None:
    with (
        pytest.raises(WatchRefused) as refused,
        namespace.api.watch(namespace.path("configmaps"), resourceVersion="yesterday"),
    ):
        pass

    assert refused.value.answer.status == 500


def test_status_and_object_changes_are_both_seen(api: Api, fresh: str) -> None:
    made = api.post("/api/v1/nodes", {"metadata": {"name": fresh}}).body
    path = f"/api/v1/nodes/{fresh}"

    with api.watch(
        "/api/v1/nodes",
        resourceVersion=made["metadata"]["resourceVersion"],
        fieldSelector=f"metadata.name={fresh}",
    ) as events:
        api.patch(f"{path}/status", {"status": {"phase": "Running"}})
        api.patch(path, {"spec": {"providerID": "x://1"}})
        api.delete(path)
        seen = list(islice(events, 3))

    assert told(seen) == [("MODIFIED", fresh), ("MODIFIED", fresh), ("DELETED", fresh)]


def test_a_finalized_object_is_modified_and_then_deleted(namespace: Namespace) -> None:
    namespace.config_map("one", metadata={"finalizers": ["a.b/c"]})
    version = version_of(namespace)
    path = namespace.path("configmaps")

    with namespace.api.watch(path, resourceVersion=version) as events:
        namespace.api.delete(f"{path}/one")
        namespace.api.patch(f"{path}/one", {"metadata": {"finalizers": None}})
        seen = list(islice(events, 2))

    assert told(seen) == [("MODIFIED", "one"), ("DELETED", "one")]
    assert seen[0]["object"]["metadata"]["deletionTimestamp"]
