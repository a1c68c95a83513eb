"""Makes domains: from a spec to schema, rows, tools, policy and tasks, each task checked by running it."""
