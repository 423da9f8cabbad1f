"""Answers of a real OpenStack 2026.2 to the conversations in `talks`, without IDs and addresses."""

from pathlib import Path

RANDOM_SEEDS = range(1, 7)


def path_of(name: str) -> Path:
    return Path(__file__).parent / f"{name}.json"
