"""Drafters: from a context to a proposed tree, one file a drafter."""
