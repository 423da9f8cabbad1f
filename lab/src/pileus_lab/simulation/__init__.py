"""The manager under schedules of faults: one process, virtual time, every choice from a seed.

event_loop.py  virtual time, tasks in a fixed order, processes that can be paused
schedule.py    from a seed to what happens: users, faults, crashes (pure)
clouds/        what a cloud needs to be simulated, and the local one
connections/   between a manager and its environment: requests and answers can be lost
environment/   an API server, a cloud account, kubelets, users
invariants/    what must hold at every step, and what at the end
play.py        one seed, from the first second to the verdict
campaign.py    many seeds
"""
