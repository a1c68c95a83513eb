"""A run as a person sees it: progress bars, and worker processes that end with Ctrl-C."""
