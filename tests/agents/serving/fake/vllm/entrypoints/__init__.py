"""A stand-in for vLLM."""
