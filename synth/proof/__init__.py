"""Playing tasks without an environment: what proves a task, measures it, and tries to break it."""
