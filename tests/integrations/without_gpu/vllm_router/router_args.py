"""What SkyRL imports. Nothing here makes one."""

from __future__ import annotations


class RouterArgs:
    """How a router would be started."""
