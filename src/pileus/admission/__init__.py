"""Admission webhooks: what they answer, the port that serves them, and its certificates."""
