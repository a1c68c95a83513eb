"""Files that an exported tau2 domain is made of. They need Python's standard library alone, and tau2 where it is
said."""
