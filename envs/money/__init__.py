"""Prices, charges and the ledger: what a call costs, what an episode has cost, and what may still be spent."""
