"""Runs one OpenStack service, its API and all its workers, in one process.

    python -m tools.openstack_bed.services.run SERVICE FOLDER PORT

Remote calls stay inside the process (oslo.messaging `fake://`), so no message broker is needed.
Runs in the virtual environment of the bed, not in the project's.
"""

import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

COMPUTE_HOSTS = ("compute1", "compute2", "compute3")
THREADS = 8
KEPT: list[Any] = []
"""Workers of the service, kept for as long as the process runs."""


def keystone(_: Path) -> Any:
    from keystone.wsgi.api import application

    return application


def placement(_: Path) -> Any:
    from placement.wsgi.api import application

    return application


def glance(_: Path) -> Any:
    from glance.wsgi.api import application

    return application


def neutron(_: Path) -> Any:
    from neutron.wsgi.api import application

    return application


def nova(_: Path) -> Any:
    """The API, a conductor, a scheduler, and one compute service per host."""
    # The application parses the configuration, so it is imported before the rest.
    from nova.wsgi.osapi_compute import application  # noqa: I001
    import nova.conf
    import os_brick
    import os_vif
    from nova import objects, service

    from tools.openstack_bed.services import nova_driver

    sys.modules["nova.virt.openstack_bed"] = nova_driver  # Nova loads drivers from nova.virt only.
    configuration = nova.conf.CONF
    os_brick.setup(configuration)
    os_vif.initialize()
    objects.Service.enable_min_version_cache()
    for binary, host, topics in _nova_workers(configuration.host):
        configuration.set_override("host", host)
        worker = service.Service.create(host=host, binary=binary, **topics)
        worker.start()
        # Its timer reports five seconds later. Until then, the scheduler takes it for down.
        worker.service_ref.report_count += 1
        worker.service_ref.save()
        KEPT.append(worker)
    configuration.clear_override("host")
    return application


def _nova_workers(controller: str) -> list[tuple[str, str, dict[str, str]]]:
    from nova.compute import rpcapi as compute
    from nova.conductor import rpcapi as conductor
    from nova.scheduler import rpcapi as scheduler

    topics = {"topic": compute.RPC_TOPIC, "topic_alt": compute.RPC_TOPIC_ALT}
    return [
        ("nova-conductor", controller, {"topic": conductor.RPC_TOPIC}),
        ("nova-scheduler", controller, {"topic": scheduler.RPC_TOPIC}),
        *(("nova-compute", host, topics) for host in COMPUTE_HOSTS),
    ]


def cinder(folder: Path) -> Any:
    """The API, a scheduler, and one volume service per backend."""
    sys.argv = ["cinder", "--config-file", str(folder / "conf" / "cinder.conf")]
    from cinder import monkey_patch

    monkey_patch.patch()
    # Registers command-line options, so it is imported before the configuration is parsed.
    import cinder.cmd.volume as volume_command  # noqa: I001
    from cinder.wsgi.api import application
    from cinder import service
    import os_brick
    from oslo_config import cfg

    os_brick.setup(cfg.CONF)
    scheduler = service.Service.create(binary="cinder-scheduler")
    # Its start() sleeps for periodic_interval, waiting for reports of capabilities.
    threading.Thread(target=scheduler.start, daemon=True).start()
    KEPT.append(scheduler)
    for backend in cfg.CONF.enabled_backends:
        cfg.CONF.register_opt(volume_command.host_opt, group=backend)
        worker = service.Service.create(
            host=f"{cfg.CONF.host}@{backend}",
            service_name=backend,
            binary="cinder-volume",
            coordination=True,
        )
        worker.start()
        KEPT.append(worker)
    return application


def octavia(folder: Path) -> Any:
    """The API, a controller worker, and the heartbeats of the amphorae."""
    from octavia.api import app

    configuration = str(folder / "conf" / "octavia.conf")
    application = app.setup_app(argv=["octavia", "--config-file", configuration])
    from octavia.controller.queue.v2 import consumer
    from oslo_config import cfg
    from tools.openstack_bed.services import heartbeats

    worker = consumer.ConsumerService(0, cfg.CONF)
    worker.run()
    KEPT.append(worker)
    heartbeats.start(folder / "down-members")
    return application


SERVICES = {
    build.__name__: build for build in (keystone, placement, glance, neutron, nova, octavia, cinder)
}


def environment(folder: Path) -> dict[str, str]:
    """Returns the variables by which the services find their configuration."""
    folders = {f"OS_{name.upper()}_CONFIG_DIR": str(folder / "conf") for name in SERVICES}
    return folders | {
        "OS_NEUTRON_CONFIG_FILES": "neutron.conf",
        "OS_NOVA_DISABLE_EVENTLET_PATCHING": "1",
        "OS_CINDER_DISABLE_EVENTLET_PATCHING": "1",
    }


def main() -> None:
    started = time.monotonic()
    name, folder, port = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    sys.argv = [name]
    os.environ.update(environment(folder))
    application = SERVICES[name](folder)
    from cheroot import wsgi
    from tools.openstack_bed.services.access_log import logged

    log = folder / "log" / f"{name}.access.jsonl"
    application = logged(application, log, with_bodies=name != "keystone")
    server = wsgi.Server(("127.0.0.1", port), application, numthreads=THREADS)
    server.prepare()
    (folder / f"{name}.ready").write_text(f"{time.monotonic() - started:.1f} s\n")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server.serve()


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # Worker threads would keep a half-started service alive.
