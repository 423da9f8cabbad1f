"""The command lines, by theme; each theme in a namespace and on objects of its own.

A theme's lines build on one another. `files/` has what they name; `edit` turns "before" to "after".
"""

from dataclasses import dataclass

APPLY = "docs/reference/apiserver.md: server-side apply is refused"
FEWER = "docs/reference/apiserver.md: fewer resources than the real server has"
DESCRIPTIONS = "docs/reference/apiserver.md: OpenAPI has no descriptions"
NOTHING_RUNS = "docs/reference/apiserver.md: nothing runs here"
VERSION = "docs/reference/apiserver.md: the version says that it is ours"
INTERNALS = "docs/reference/apiserver.md: no dump of Go structs"
IDENTITY = "each server has an administrator of its own"


@dataclass(frozen=True)
class Line:
    """One command line, said alike by both servers unless `why` says otherwise."""

    text: str
    why: str = ""
    within: bool = False
    """Each line of ours is also one of the real server's."""
    ours: str = ""
    """What ours says instead."""


def within(text: str, why: str) -> Line:
    return Line(text, why, within=True)


def instead(text: str, why: str, ours: str) -> Line:
    return Line(text, why, ours=ours)


NODES = """
apply -f node.yaml
get node worker
get node worker -o wide
get node worker -o name
get node worker -o yaml
get node worker -o json
get node worker -o jsonpath={.status.addresses[*].address}
get node worker -o custom-columns=NAME:.metadata.name,ID:.spec.providerID
get node worker --show-labels
get nodes -l topology.kubernetes.io/zone=north-1 -L topology.kubernetes.io/zone
get nodes --field-selector metadata.name=worker
apply -f node-lease.yaml
describe node worker
describe lease worker -n kube-node-lease
label node worker disk=fast
label node worker disk=slow
label node worker disk=slow --overwrite
label node worker disk-
label node worker bad/label/key=x
annotate node worker note=before
annotate node worker note=again
edit node worker
get node worker -o jsonpath={.metadata.annotations.note}
taint node worker key=value:NoSchedule
taint node worker key=value:NoSchedule
taint node worker key=other:NoSchedule --overwrite
get node worker -o jsonpath={.spec.taints}
taint node worker key:NoSchedule-
taint node worker key:NoSchedule-
cordon worker
cordon worker
get node worker
uncordon worker
uncordon worker
wait node/worker --for=condition=Ready --timeout=20s
wait node/worker --for=jsonpath={.spec.providerID}=local://worker --timeout=20s
wait node/worker --for=condition=Nothing --timeout=1s
patch node worker --type=strategic --subresource=status --patch-file=ready.yaml
get node worker
get node worker --subresource=status
wait node/worker --for=condition=Ready=false --timeout=20s
patch node worker --type=merge -p '{"metadata":{"labels":{"a":"b"}}}'
patch node worker --type=merge -p '{"metadata":{"labels":{"a":"b"}}}'
patch node worker --type=json -p '[{"op":"remove","path":"/metadata/labels/a"}]'
patch node worker --type=json -p '[{"op":"remove","path":"/metadata/labels/a"}]'
patch node worker --type=merge -p '{"spec":{"providerID":"local://other"}}'
patch node worker -p nonsense
get node worker -o jsonpath={.metadata.labels}
drain worker --dry-run=client
drain worker
get node worker -o yaml
delete node worker --now
delete node worker
delete node worker --ignore-not-found
get node worker
get node worker --ignore-not-found
wait node/worker --for=delete --timeout=5s
"""

SERVICES = """
apply -f service.yaml --dry-run=client
apply -f service.yaml --dry-run=server
apply -f service.yaml
get service web
get svc web -o wide
get svc web -o yaml
describe service web
apply -f slice.yaml
get endpointslices
get endpointslices -o wide
describe endpointslice web-1
describe service web
patch service web --subresource=status --type=merge --patch-file=address.yaml
get svc web
wait service/web --for=jsonpath={.status.loadBalancer.ingress} --timeout=20s
describe service web
apply -f service-changed.yaml
get svc web
get svc web -o yaml
edit service web
get svc web -o jsonpath={.metadata.annotations.note}
patch svc web -p '{"spec":{"ports":[{"port":53,"$patch":"delete"}]}}'
get svc web -o jsonpath={.spec.ports[*].name}
patch svc web --type=json -p '[{"op":"replace","path":"/spec/type","value":"ClusterIP"}]'
get svc web
create service clusterip plain --tcp=80:8080
create service nodeport ports --tcp=80
create service loadbalancer balanced --tcp=443:8443 --tcp=80
create service externalname elsewhere --external-name=example.test
create service clusterip headless --clusterip=None
get services
get services -o wide
get services -o name
get services --sort-by=.spec.type
get services --field-selector spec.type=NodePort
describe service elsewhere
describe services
set selector service plain app=other
get svc plain -o wide
create -f bad-service.yaml
patch svc plain -p '{"spec":{"clusterIP":"10.9.9.9"}}'
delete service plain ports
delete service headless --dry-run=server
delete service headless --wait=false
delete services elsewhere
delete services --all --dry-run=client
delete service web --cascade=foreground --wait=false
delete service balanced --cascade=orphan --wait=false
"""

PODS = """
create -f pods.yaml
get pods
get pods -o wide
get pod web -o yaml
get pod idle -o json
describe pod web
describe pod idle
expose pod web --port=80 --target-port=8080
get service web -o jsonpath={.spec.selector}
patch pod web --subresource=status --type=merge --patch-file=pod-running.yaml
get pods
get pods -o wide
get pods -A --field-selector spec.nodeName=worker,metadata.namespace=pods
get pods --field-selector status.phase=Running -o name
wait pod/web --for=condition=Ready --timeout=20s
describe pod web
label pods --all team=shop
annotate pods --all note-
set image pod/web web=example.test/web:2
get pod web -o jsonpath={.spec.containers[*].image}
run quick --image=example.test/quick:1 --labels=app=quick --port=80
run quick --image=example.test/quick:1
get pod quick -o jsonpath={.spec.restartPolicy}
logs nobody
delete pod quick --now
delete pod idle --cascade=background
delete pod web --wait=false
get pod web -o jsonpath={.metadata.deletionGracePeriodSeconds}
get pods
delete pod web --grace-period=0 --force
wait pod/web --for=delete --timeout=20s
get pods
"""

RUNNING = (
    Line("create -f pods.yaml"),
    within('patch pod web -p \'{"spec":{"nodeName":"other"}}\'', INTERNALS),
    instead("logs web", NOTHING_RUNS, "runs no containers"),
    instead("logs idle -c aside", NOTHING_RUNS, "runs no containers"),
    instead("exec web -- true", NOTHING_RUNS, "could not find the requested resource"),
)

EVENTS = """
apply -f service.yaml
create -f events.yaml
get events
get events -o wide
get events --field-selector type=Warning
get events.events.k8s.io
get events.events.k8s.io web.3 -o yaml
get event web.3 -o yaml
get event web.1 -o yaml
events
events --types=Warning
events --for=service/web
describe event web.1
describe event web.2
describe service web
delete events --all
events
"""

CONFIGS = """
apply -f config.yaml
apply -f config.yaml
get configmap settings
get cm settings -o yaml
apply view-last-applied configmap settings
diff -f config-changed.yaml
apply -f config-changed.yaml
get cm settings -o yaml
edit cm settings
diff -f config-changed.yaml
patch cm settings --type=merge -p '{"data":{"mode":"before","by":"hand"}}'
edit cm settings
get cm settings -o jsonpath={.data}
apply -f config.yaml
get cm settings -o jsonpath={.data}
apply set-last-applied -f config-changed.yaml
apply edit-last-applied cm settings
replace -f config.yaml
replace -f stale.yaml
replace --force -f config.yaml
get cm settings -o go-template={{.data.mode}}
describe configmap settings
create -f config.yaml
create -f several.yaml
apply -f several.yaml
get cm,secrets -l set=several
get cm,secrets -l set=several -o name
get all
get cm -l 'set in (several),set notin (other)' --no-headers
get cm --sort-by=.metadata.name -o custom-columns=N:.metadata.name
get cm --chunk-size=1 -o name
get secret three -o jsonpath={.data.key}
describe secret three
delete -f several.yaml
delete cm settings absent
create configmap literal --from-literal=a=1 --from-literal=b=2
create secret generic hidden --from-literal=a=1
create secret docker-registry pull --docker-username=u --docker-password=p
get secrets
get secret hidden -o yaml
create configmap literal --from-literal=a=1
create configmap literal --from-literal=a=2 --dry-run=client -o yaml
create configmap draft --from-literal=a=2 --dry-run=server -o yaml
get cm draft
create namespace configs-more
get namespace configs-more
label ns configs-more kubernetes.io/metadata.name-
delete cm -l app=nothing
delete configmaps --all
delete secrets --all --now
get cm
"""

ACCESS = (
    *map(Line, """
create serviceaccount robot
get serviceaccounts
describe serviceaccount robot
create token robot
create token robot --duration=20m --audience=example
create token nobody
create role reader --verb=get,list --resource=pods,services/status
create rolebinding readers --role=reader --serviceaccount=access:robot
create clusterrole access-admin --verb=* --resource=nodes
create clusterrole access-path --verb=get --non-resource-url=/metrics
create clusterrolebinding access-admins --clusterrole=access-admin --user=ann --group=crew
get roles,rolebindings
get roles,rolebindings -o wide
get clusterrole access-admin -o yaml
get clusterrolebinding access-admins -o wide
describe role reader
describe rolebinding readers
describe clusterrole access-path
describe clusterrolebinding access-admins
auth can-i get pods
auth can-i get pods --as=system:serviceaccount:access:robot
auth can-i delete pods --as=system:serviceaccount:access:robot
auth can-i get services --subresource=status --as=system:serviceaccount:access:robot
auth can-i list nodes --as=ann
auth can-i list nodes --as=bob --as-group=crew
auth can-i get /metrics --as=nobody
auth can-i get things
auth whoami --as=ann --as-group=crew
get pods --as=system:serviceaccount:access:robot
get secrets --as=system:serviceaccount:access:robot
delete node nothing --as=nobody
create configmap no --as=nobody
get nodes --as=ann -o name
delete clusterrole access-admin access-path
delete clusterrolebinding access-admins
""".strip().splitlines()),
    within("auth can-i --list --as=system:serviceaccount:access:robot", FEWER),
    instead("auth whoami", IDENTITY, "kubernetes-admin"),
)  # fmt: skip

DISCOVERY = (
    *map(Line, """
cluster-info
get --raw /healthz
get --raw /readyz
get --raw /api
get --raw /nothing
get --raw /api/v1/namespaces/discovery/configmaps/nothing
get things
get pods.example.test
api-resources --api-group=coordination.k8s.io
api-resources --api-group=events.k8s.io -o wide
api-resources --api-group=rbac.authorization.k8s.io -o name
create -f unknown-field.yaml
create -f unknown-field.yaml --validate=warn
create -f unknown-field.yaml --validate=false
create -f unknown-kind.yaml
create -f bad-name.yaml
explain node.nothing
explain thing
get namespaces -o name --field-selector metadata.name=default
""".strip().splitlines()),
    instead("version", VERSION, "Server Version: v1.37.1+pileus"),
    instead("version -o yaml", VERSION, "gitVersion: v1.37.1+pileus"),
    within("api-resources", FEWER),
    within("api-resources -o wide", FEWER),
    within("api-resources --namespaced=false --verbs=list", FEWER),
    within("api-versions", FEWER),
    within("explain node", DESCRIPTIONS),
    within("explain node.spec.taints", DESCRIPTIONS),
    within("explain service.spec.ports.targetPort", DESCRIPTIONS),
    within("explain leases --recursive", DESCRIPTIONS),
    within("explain pods.spec --recursive", DESCRIPTIONS),
    instead("apply --server-side -f config.yaml", APPLY, "415: Unsupported Media Type"),
)  # fmt: skip


def _lines(script: str) -> tuple[Line, ...]:
    return tuple(Line(line) for line in script.strip().splitlines())


THEMES: dict[str, tuple[Line, ...]] = {
    "nodes": _lines(NODES),
    "services": _lines(SERVICES),
    "pods": _lines(PODS),
    "running": RUNNING,
    "events": _lines(EVENTS),
    "configs": (*_lines(CONFIGS), within("describe namespace configs-more", FEWER)),
    "access": ACCESS,
    "discovery": DISCOVERY,
}
