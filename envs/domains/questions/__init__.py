"""What question benchmarks share: the source of tasks, the world of one question, the judge, real data sets."""
