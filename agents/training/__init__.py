"""The training loop and what only it needs: warm start, batches, checkpoints, metrics."""
