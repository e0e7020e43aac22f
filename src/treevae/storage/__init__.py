"""Files that are there whole or not at all, and the states of a run, one process at a time."""
