"""The episode: a state machine that does no I/O. Its rules, its limits, and how it is printed."""
