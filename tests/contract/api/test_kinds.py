"""What is particular to nodes, services, events and leases."""

from typing import Any

import pytest

from tests.contract.api.http import MERGE, STRATEGIC, Api, Namespace

LEASES = "coordination.k8s.io/v1"
DISCOVERY = "discovery.k8s.io/v1"


@pytest.fixture
def node(api: Api, fresh: str) -> Any:
    yield api.post("/api/v1/nodes", {"metadata": {"name": fresh}}).body
    api.delete(f"/api/v1/nodes/{fresh}")


class TestNodes:
    def test_a_new_node_is_not_ready_by_admission(self, node: dict[str, Any]) -> None:
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

        assert node["spec"]["taints"] == [taint]

    def test_status_is_written_through_its_subresource_alone(
        self, api: Api, node: dict[str, Any]
    ) -> None:
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        addresses = [{"type": "InternalIP", "address": "10.0.0.1"}]

        ignored = api.patch(path, {"status": {"addresses": addresses}})
        taken = api.patch(f"{path}/status", {"status": {"addresses": addresses}})

        assert "addresses" not in ignored.body["status"]
        assert taken.body["status"]["addresses"] == addresses

    def test_the_status_subresource_leaves_the_spec_alone(
        self, api: Api, node: dict[str, Any]
    ) -> None:
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"

        answer = api.patch(path, {"spec": {"unschedulable": True}})

        assert answer.status == 200
        assert "unschedulable" not in answer.body["spec"]

    def test_labels_may_be_written_through_status(self, api: Api, node: dict[str, Any]) -> None:
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"

        answer = api.patch(path, {"metadata": {"labels": {"a": "b"}}})

        assert answer.body["metadata"]["labels"] == {"a": "b"}

    def test_the_provider_id_is_set_once(self, api: Api, node: dict[str, Any]) -> None:
        path = f"/api/v1/nodes/{node['metadata']['name']}"

        first = api.patch(path, {"spec": {"providerID": "x://1"}})
        second = api.patch(path, {"spec": {"providerID": "x://2"}})

        assert first.status == 200
        assert (second.status, second.reason) == (422, "Invalid")
        assert second.causes == {("FieldValueInvalid", "spec.providerID")}

    def test_pod_range_and_ranges_are_kept_alike(self, api: Api, node: dict[str, Any]) -> None:
        path = f"/api/v1/nodes/{node['metadata']['name']}"

        answer = api.patch(path, {"spec": {"podCIDRs": ["10.1.0.0/24"]}}, STRATEGIC)

        assert answer.body["spec"]["podCIDR"] == "10.1.0.0/24"

    @pytest.mark.parametrize(
        "taint",
        [
            pytest.param({"key": "a", "effect": "Sometimes"}, id="effect"),
            pytest.param({"key": "bad key", "effect": "NoSchedule"}, id="key"),
            pytest.param({"key": "a", "value": "bad value", "effect": "NoSchedule"}, id="value"),
            pytest.param({"key": "", "effect": "NoSchedule"}, id="no-key"),
        ],
    )
    def test_a_bad_taint_is_invalid(
        self, api: Api, node: dict[str, Any], taint: dict[str, str]
    ) -> None:
        path = f"/api/v1/nodes/{node['metadata']['name']}"

        answer = api.patch(path, {"spec": {"taints": [taint]}}, MERGE)

        assert (answer.status, answer.reason) == (422, "Invalid")

    def test_the_same_taint_twice_is_invalid(self, api: Api, node: dict[str, Any]) -> None:
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        taint = {"key": "a", "effect": "NoSchedule"}

        answer = api.patch(path, {"spec": {"taints": [taint, taint]}}, MERGE)

        assert answer.causes == {("FieldValueDuplicate", "metadata.taints[1]")}


def service(namespace: Namespace, name: str = "web", **spec: Any) -> dict[str, Any]:
    spec = {"ports": [{"port": 80}], **spec}
    made = namespace.api.post(
        namespace.path("services"), {"metadata": {"name": name}, "spec": spec}
    )
    assert made.status == 201, made
    return made.body


class TestServices:
    def test_a_plain_service_gets_the_usual_defaults(self, namespace: Namespace) -> None:
        spec = service(namespace)["spec"]

        assert spec["type"] == "ClusterIP"
        assert spec["sessionAffinity"] == "None"
        assert spec["ipFamilies"] == ["IPv4"]
        assert spec["ipFamilyPolicy"] == "SingleStack"
        assert spec["internalTrafficPolicy"] == "Cluster"
        assert spec["clusterIPs"] == [spec["clusterIP"]]
        assert spec["clusterIP"].startswith("10.")
        assert spec["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]

    def test_a_balanced_service_gets_node_ports(self, namespace: Namespace) -> None:
        spec = service(namespace, type="LoadBalancer")["spec"]

        assert 30000 <= spec["ports"][0]["nodePort"] <= 32767
        assert spec["allocateLoadBalancerNodePorts"] is True
        assert spec["externalTrafficPolicy"] == "Cluster"

    def test_a_local_service_gets_a_health_check_port(self, namespace: Namespace) -> None:
        spec = service(namespace, type="LoadBalancer", externalTrafficPolicy="Local")["spec"]

        assert 30000 <= spec["healthCheckNodePort"] <= 32767

    def test_node_ports_are_unique(self, namespace: Namespace) -> None:
        ports = [{"name": str(n), "port": n} for n in range(80, 85)]

        made = service(namespace, type="NodePort", ports=ports)["spec"]["ports"]

        assert len({port["nodePort"] for port in made}) == 5

    def test_a_taken_node_port_is_refused(self, namespace: Namespace) -> None:
        taken = service(namespace, type="NodePort")["spec"]["ports"][0]["nodePort"]
        body = {
            "metadata": {"name": "late"},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": taken}]},
        }

        answer = namespace.api.post(namespace.path("services"), body)

        assert (answer.status, answer.reason) == (422, "Invalid")
        assert answer.causes == {("FieldValueInvalid", "spec.ports[0].nodePort")}
        assert "provided port is already allocated" in answer.message

    def test_node_ports_go_with_the_type(self, namespace: Namespace) -> None:
        service(namespace, type="LoadBalancer")

        answer = namespace.api.patch(
            namespace.path("services", "web"),
            {"spec": {"type": "ClusterIP"}},
            STRATEGIC,
        )

        assert answer.status == 200
        assert "nodePort" not in answer.body["spec"]["ports"][0]
        assert "allocateLoadBalancerNodePorts" not in answer.body["spec"]

    def test_the_mode_of_an_ingress_address_is_filled_in(self, namespace: Namespace) -> None:
        service(namespace, type="LoadBalancer")

        answer = namespace.api.patch(
            namespace.path("services", "web") + "/status",
            {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}},
        )

        assert answer.body["status"]["loadBalancer"]["ingress"] == [
            {"ip": "192.0.2.1", "ipMode": "VIP"}
        ]

    def test_an_ingress_keeps_ip_host_name_and_ports_and_is_replaced_whole(
        self, namespace: Namespace
    ) -> None:
        service(namespace, type="LoadBalancer")
        path = namespace.path("services", "web") + "/status"
        ports = [
            {"port": 80, "protocol": "TCP"},
            {"port": 443, "protocol": "TCP", "error": "acme.example/PortInUse"},
        ]
        full = {"ip": "192.0.2.1", "hostname": "a.b", "ipMode": "Proxy", "ports": ports}
        fewer = {**full, "ports": ports[:1]}

        for ingress in (full, fewer):
            answer = namespace.api.patch(path, {"status": {"loadBalancer": {"ingress": [ingress]}}})
            assert answer.body["status"]["loadBalancer"]["ingress"] == [ingress]

    @pytest.mark.parametrize(
        "port",
        [
            pytest.param({"port": 0, "protocol": "TCP"}, id="zero"),
            pytest.param({"port": 80, "protocol": "QUIC"}, id="protocol"),
            pytest.param({"port": 80, "protocol": "TCP", "error": "is in use"}, id="sentence"),
        ],
    )
    def test_the_states_of_ports_are_not_validated(
        self, namespace: Namespace, port: dict[str, object]
    ) -> None:
        service(namespace, type="LoadBalancer")
        ingress = {"hostname": "a.b", "ports": [port]}

        answer = namespace.api.patch(
            namespace.path("services", "web") + "/status",
            {"status": {"loadBalancer": {"ingress": [ingress]}}},
        )

        assert answer.status == 200
        assert answer.body["status"]["loadBalancer"]["ingress"] == [ingress]

    @pytest.mark.parametrize(
        "ingress",
        [
            pytest.param({"ip": "no ip"}, id="ip"),
            pytest.param({"hostname": "-bad-"}, id="hostname"),
            pytest.param({"hostname": "a.b", "ipMode": "VIP"}, id="mode-without-ip"),
            pytest.param({"ip": "192.0.2.1", "ipMode": "Magic"}, id="mode"),
        ],
    )
    def test_a_bad_ingress_is_invalid(self, namespace: Namespace, ingress: dict[str, str]) -> None:
        service(namespace, type="LoadBalancer")

        answer = namespace.api.patch(
            namespace.path("services", "web") + "/status",
            {"status": {"loadBalancer": {"ingress": [ingress]}}},
        )

        assert (answer.status, answer.reason) == (422, "Invalid")

    def test_annotations_may_be_set_and_removed_through_status(self, namespace: Namespace) -> None:
        service(namespace, type="LoadBalancer")
        path = namespace.path("services", "web") + "/status"

        noted = namespace.api.patch(path, {"metadata": {"annotations": {"a": "1"}}}, MERGE)
        removed = namespace.api.patch(path, {"metadata": {"annotations": {"a": None}}}, MERGE)

        assert noted.body["metadata"]["annotations"] == {"a": "1"}
        assert "annotations" not in removed.body["metadata"]

    def test_the_finalizer_may_be_set_through_status(self, namespace: Namespace) -> None:
        service(namespace, type="LoadBalancer")
        finalizer = "service.kubernetes.io/load-balancer-cleanup"

        answer = namespace.api.patch(
            namespace.path("services", "web") + "/status",
            {"metadata": {"finalizers": [finalizer]}},
            STRATEGIC,
        )

        assert answer.body["metadata"]["finalizers"] == [finalizer]
        namespace.api.patch(namespace.path("services", "web"), {"metadata": {"finalizers": None}})

    @pytest.mark.parametrize(
        "spec",
        [
            pytest.param({"type": "Magic"}, id="type"),
            pytest.param({"ports": []}, id="no-ports"),
            pytest.param({"ports": [{"port": 70000}]}, id="port"),
            pytest.param({"ports": [{"port": 80, "protocol": "ICMP"}]}, id="protocol"),
            pytest.param({"ports": [{"port": 80}, {"port": 81}]}, id="nameless-ports"),
            pytest.param({"sessionAffinity": "Always"}, id="affinity"),
            pytest.param({"clusterIP": "nonsense"}, id="cluster-ip"),
            pytest.param({"type": "LoadBalancer", "loadBalancerSourceRanges": ["x"]}, id="ranges"),
            pytest.param({"externalTrafficPolicy": "Local"}, id="policy-of-cluster-ip"),
        ],
    )
    def test_a_bad_service_is_invalid(self, namespace: Namespace, spec: dict[str, Any]) -> None:
        body = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}], **spec}}

        answer = namespace.api.post(namespace.path("services"), body)

        assert (answer.status, answer.reason) == (422, "Invalid")

    def test_the_cluster_address_cannot_be_changed(self, namespace: Namespace) -> None:
        service(namespace)

        answer = namespace.api.patch(
            namespace.path("services", "web"),
            {"spec": {"clusterIP": "10.0.0.77", "clusterIPs": ["10.0.0.77"]}},
        )

        assert (answer.status, answer.reason) == (422, "Invalid")

    def test_a_headless_service_has_no_address(self, namespace: Namespace) -> None:
        assert service(namespace, clusterIP="None")["spec"]["clusterIPs"] == ["None"]


class TestEvents:
    def test_an_event_is_one_object_in_both_groups(self, namespace: Namespace) -> None:
        about = {"kind": "Node", "name": "n", "namespace": namespace.name}
        body = {
            "metadata": {"name": "e"},
            "involvedObject": about,
            "reason": "R",
            "message": "M",
            "type": "Normal",
            "count": 1,
        }
        namespace.api.post(namespace.path("events"), body)

        new = namespace.api.get(namespace.path("events", "e", group="events.k8s.io/v1")).body

        assert new["kind"] == "Event"
        assert new["apiVersion"] == "events.k8s.io/v1"
        assert new["regarding"]["name"] == "n"
        assert new["note"] == "M"
        assert new["deprecatedCount"] == 1

    def test_an_event_must_be_in_its_object_s_namespace(self, namespace: Namespace) -> None:
        body = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "other"},
        }

        answer = namespace.api.post(namespace.path("events"), body)

        assert (answer.status, answer.reason) == (422, "Invalid")
        assert answer.causes == {("FieldValueInvalid", "involvedObject.namespace")}

    def test_an_event_about_a_node_lives_in_default(self, api: Api) -> None:
        body = {
            "metadata": {"generateName": "e-"},
            "involvedObject": {"kind": "Node", "name": "n"},
            "reason": "R",
        }

        answer = api.post("/api/v1/namespaces/default/events", body)

        assert answer.status == 201

    def test_the_count_is_patched(self, namespace: Namespace) -> None:
        about = {"kind": "Node", "name": "n", "namespace": namespace.name}
        body = {"metadata": {"name": "e"}, "involvedObject": about, "count": 1}
        namespace.api.post(namespace.path("events"), body)

        answer = namespace.api.patch(namespace.path("events", "e"), {"count": 2}, STRATEGIC)

        assert answer.body["count"] == 2


class TestLeases:
    def test_times_keep_their_microseconds(self, namespace: Namespace) -> None:
        spec = {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-02T03:04:05.123456Z",
            "leaseTransitions": 0,
        }
        body = {"metadata": {"name": "l"}, "spec": spec}

        made = namespace.api.post(namespace.path("leases", group=LEASES), body)

        assert made.status == 201
        assert made.body["spec"] == spec

    def test_a_stale_holder_conflicts(self, namespace: Namespace) -> None:
        path = namespace.path("leases", group=LEASES)
        spec = {"holderIdentity": "me"}
        made = namespace.api.post(path, {"metadata": {"name": "l"}, "spec": spec}).body
        namespace.api.put(f"{path}/l", made | {"spec": {"holderIdentity": "other"}})

        answer = namespace.api.put(f"{path}/l", made | {"spec": {"holderIdentity": "me again"}})

        assert (answer.status, answer.reason) == (409, "Conflict")

    @pytest.mark.parametrize(
        "spec",
        [{"leaseDurationSeconds": 0}, {"leaseTransitions": -1}, {"leaseDurationSeconds": -5}],
    )
    def test_a_bad_lease_is_invalid(self, namespace: Namespace, spec: dict[str, int]) -> None:
        body = {"metadata": {"name": "l"}, "spec": spec}

        answer = namespace.api.post(namespace.path("leases", group=LEASES), body)

        assert (answer.status, answer.reason) == (422, "Invalid")


def test_an_endpoint_slice_keeps_its_address_type(namespace: Namespace) -> None:
    path = namespace.path("endpointslices", group=DISCOVERY)
    body = {
        "metadata": {"name": "s"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"port": 80}],
    }
    made = namespace.api.post(path, body)

    answer = namespace.api.patch(f"{path}/s", {"addressType": "IPv6"})

    assert made.status == 201
    assert (answer.status, answer.reason) == (422, "Invalid")
