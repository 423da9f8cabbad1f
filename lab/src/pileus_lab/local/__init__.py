"""A cloud on one machine, for demonstrations, tests and simulations."""
