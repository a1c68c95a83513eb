"""A depot that rents tools out. Everything in one folder; the clock is asked for in every way there is."""
