"""Llama as pure passes: tokens, positions, masks and cache -> hidden."""
