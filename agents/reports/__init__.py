"""What a person reads after a run: the page of one run, the table of several."""
