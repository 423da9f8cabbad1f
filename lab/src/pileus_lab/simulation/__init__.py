"""The whole manager under schedules of faults: one process, virtual time, every choice from a seed.

loop.py       time that jumps, tasks in a fixed order, processes that can be paused
schedule.py   from a seed to what happens: users, faults, crashes (pure)
clouds/       what a cloud must be able to do to be simulated, and the local one
wires/        between a replica and its surroundings: what can be lost, late or wrong
stage/        the surroundings: an API server, a cloud, kubelets, people
invariants/   what must hold at every step, and what in the end
play.py       one seed, from the first second to the verdict
campaign.py   many seeds, and what is told about them
"""
