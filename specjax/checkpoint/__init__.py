"""Bytes to parameters and back, on the host."""
