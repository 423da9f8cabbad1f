"""What managers log, measure and show is read in some seeds, and is written nowhere else."""

import logging

from pileus.telemetry.log import Log
from pileus_lab.simulation.diagnostics import EVERY, Sayings
from pileus_lab.simulation.setup import SECRET, SETUPS

log = Log("pileus.somewhere")
CONFIG = SETUPS[0].config


def test_a_secret_in_the_log_is_heard():
    sayings = Sayings(1, CONFIG)

    with sayings.listening():
        log.info("Opening", v=4, account=SECRET)
        log.info("Opened", account="ours")

    (leak,) = sayings.leaks()
    assert leak.startswith("the log: ")
    assert SECRET in leak


def test_a_secret_in_a_metric_is_seen():
    sayings = Sayings(EVERY + 1, CONFIG)

    sayings.metrics.route_syncs.labels(SECRET, "").inc()

    assert list(sayings.leaks()) == ["/metrics"]


def test_most_seeds_are_not_listened_to():
    sayings = Sayings(2, CONFIG)

    with sayings.listening():
        assert not log.enabled(0)
        log.error("Failed", account=SECRET)

    assert not sayings.is_heard
    assert list(sayings.leaks()) == []


def test_the_log_is_as_it_was_afterwards():
    logger = logging.getLogger("pileus")
    before = logger.level, logger.propagate, list(logger.handlers)

    for seed in (1, 2):
        with Sayings(seed, CONFIG).listening():
            pass

    assert (logger.level, logger.propagate, logger.handlers) == before
    assert logging.root.manager.disable == logging.NOTSET


def test_exceptions_that_no_manager_expects_are_heard_in_every_seed():
    for seed in (1, 2):
        sayings = Sayings(seed, CONFIG)

        with sayings.listening():
            log.error("Pass failed, will be retried", error=KeyError("expected"))
            try:
                raise KeyError("a bug")
            except KeyError as error:
                log.exception("Pass failed, will be retried", error=error)

        assert list(sayings.unexpected()) == ["Pass failed, will be retried: KeyError('a bug')"]
