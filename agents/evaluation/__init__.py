"""Measuring a policy: over simulated or real backends, and on held-out tasks."""
