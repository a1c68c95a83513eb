"""Measuring a policy: over simulated or real backends, on held-out tasks, and by probes."""
