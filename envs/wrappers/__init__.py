"""Gymnasium wrappers: classical agents' views of an episode, recording, and vector rewards."""
