"""The keys of services, which stand in the environment and nowhere else."""

from __future__ import annotations

import os

from toolorchestra.envs.base.errors import ConfigError


def key_in(variable: str) -> str:
    """The key that an environment variable holds, without the line end of the file that it came from; "" for none."""
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):  # an HTTP library would quote the whole of it in its error
        raise ConfigError(f"the key in ${variable} has characters that no header takes; export it anew: {variable}=...")
    return key
