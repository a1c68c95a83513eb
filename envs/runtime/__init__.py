"""What waits: the drivers that run an episode's calls, with deadlines, on one event loop."""
