"""Playing with a model, token by token: transcripts as tokens, trajectories, rollouts, and their rewards."""
