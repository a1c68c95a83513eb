"""HLE-like questions: generated, hard to guess, with exact answers."""
