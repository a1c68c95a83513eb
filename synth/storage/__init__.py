"""What a run keeps on disk: results of stages, and answers that were paid for."""
