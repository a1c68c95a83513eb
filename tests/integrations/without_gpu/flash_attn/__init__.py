"""Stands in for flash-attn, which is built on a GPU machine: SkyRL imports it before it knows whether it trains."""
