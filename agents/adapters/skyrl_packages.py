"""What the SkyRL door imports of SkyRL, with a sentence where it is missing or of another version."""

from __future__ import annotations

from importlib import metadata, util

from toolorchestra.envs.base.errors import ConfigError

SERIES = "0.4"
"""What this door is written for and tested with; its classes are no stable interface of SkyRL's."""


def check_skyrl(series: str = SERIES) -> None:
    """Raise ConfigError with what to do."""
    if util.find_spec("skyrl") is None:
        raise ConfigError(
            f"this door is SkyRL's, and skyrl is not installed here: it wants skyrl {series} on Python 3.12; "
            "deploy/skyrl is a uv project that has it, make test-skyrl an environment without GPU packages"
        )
    found = metadata.version("skyrl")
    if not found.startswith(f"{series}."):
        raise ConfigError(f"this door is written for skyrl {series}, found {found}: pip install 'skyrl=={series}.*'")


check_skyrl()
