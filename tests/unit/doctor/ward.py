"""A cluster with a manager at work, for the doctor: embedded API server, local cloud."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from pileus.app.manager import Manager
from pileus.deployment.choice import Choice
from pileus.deployment.rbac import access_objects
from pileus.doctor.doctor import Diagnosis, diagnose
from pileus.doctor.observation import Observation
from pileus.doctor.reading import observe
from tests.unit.app.scene import Scene, scene
from tests.unit.app.stage import Kube, configured

ACCOUNT = "kube-system/pileus-cloud-controller-manager"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


async def create(scene: Scene, manifest: Any) -> None:
    """Create an object of RBAC, an account, or anything in the core group."""
    kind, namespace = manifest["kind"], manifest["metadata"].get("namespace")
    version = manifest.get("apiVersion", "v1")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"{root}/namespaces/{namespace}" if namespace else root
    body = json.dumps(manifest).encode()
    await scene.client.raw("POST", f"{where}/{kind.lower()}s", body=body)


async def grant(scene: Scene, *flags: str) -> None:
    """Create the manager's account with its rights, as `pileus manifests` does."""
    for manifest in access_objects(Choice(config=configured(*scene.flags, *flags))):
        await create(scene, manifest)


@asynccontextmanager
async def healthy_cluster(kube: Kube | None = None) -> AsyncGenerator[Scene]:
    """Three nodes and a Service, with a manager that has done its work and still runs."""
    async with scene("n1", "n2", "n3", kube=kube) as made:
        await grant(made)
        await made.add_service("web", 80)
        async with at_work(made):
            yield made


@asynccontextmanager
async def at_work(made: Scene, *flags: str) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        manager = Manager(configured(*made.flags, *flags), made.world())
        running = group.create_task(manager.run())
        await asyncio.sleep(300)
        yield
        running.cancel()


async def seen(made: Scene, *flags: str) -> Observation:
    return await observe(configured(*made.flags, *flags), made.world(), ACCOUNT)


async def examined(made: Scene, *flags: str) -> Diagnosis:
    return diagnose(await seen(made, *flags))


def ids(diagnosis: Diagnosis) -> set[str]:
    return {finding.id for finding in diagnosis.findings}
