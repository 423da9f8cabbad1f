"""What happens to Services, turned into keys of the queue."""

import asyncio

from pileus.controllers.service.classes import Classes, is_load_balancer
from pileus.controllers.service.departed import Departed
from pileus.controllers.service.notes import Notes
from pileus.controllers.service.plan import is_claimed, is_worth_a_pass, went_elsewhere
from pileus.controllers.service.status import published_ingress
from pileus.kube.model.core_v1 import Service
from pileus.runtime.queue import Priority, WorkQueue


class ServiceHandler:
    def __init__(
        self,
        queue: WorkQueue[str],
        notes: Notes,
        departed: Departed,
        classes: Classes,
    ) -> None:
        self._queue = queue
        self._notes = notes
        self._departed = departed
        self._classes = classes

    def added(self, new: Service, /) -> None:
        """Those that seem to have what they want wait behind those that do not."""
        if self._concerns_us(new):
            seems_well = is_claimed(new) and bool(published_ingress(new))
            is_urgent = new.metadata.deletion_timestamp is not None or not seems_well
            priority = Priority.URGENT if is_urgent else Priority.REFRESH
            self._queue.add(new.metadata.uid, priority)

    def updated(self, old: Service, new: Service, /) -> None:
        """A resync, in which nothing is new, is no reason: back-off and drift have their own."""
        if old is new or not is_worth_a_pass(old, new):
            return
        if self._concerns_us(old) or self._concerns_us(new):
            self._queue.add(new.metadata.uid)

    def deleted(self, old: Service, /) -> None:
        """One that was not released may have left something in the cloud."""
        uid = old.metadata.uid
        if self._notes.is_released(uid):
            self._notes.forget(uid)
        elif self._is_known(uid) or (is_claimed(old) and self._was_served(old)):
            self._departed.add(old, asyncio.get_running_loop().time())
        if self._concerns_us(old):
            self._queue.add(uid)

    def _concerns_us(self, service: Service) -> bool:
        is_lb = is_load_balancer(service) or is_claimed(service)
        return is_lb or self._is_known(service.metadata.uid)

    def _was_served(self, service: Service) -> bool:
        return self._classes.serve(service) or went_elsewhere(service, self._classes)

    def _is_known(self, uid: str) -> bool:
        note = self._notes.find(uid)
        return note is not None and note.known
