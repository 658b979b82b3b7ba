"""Simulated best trees of known sources: what brw_vs_bounds compares with."""
