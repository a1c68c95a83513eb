"""Our environments and rollouts in the trainers of others."""
