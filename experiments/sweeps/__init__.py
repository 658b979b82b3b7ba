"""Sweeps: grids of runs, shared out to workers through a store."""
