"""Sets how torch's threads wait, before any test imports torch."""

import toolorchestra.agents.engines  # noqa: F401
