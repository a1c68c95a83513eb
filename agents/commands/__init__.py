"""What stands behind the command line."""
