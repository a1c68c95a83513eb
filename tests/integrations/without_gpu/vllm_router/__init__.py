"""Stands in for vllm-router, which comes with vLLM: SkyRL imports it where the servers are elsewhere, too."""
