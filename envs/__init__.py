"""Environments: tasks, tools and money. No torch, and no network, at import; importing this imports no environment."""
