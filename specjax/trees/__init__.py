"""Draft trees as arrays: what they are, which are good, how one is walked."""
