"""Decoding: a proposed tree and the verifier give a verdict, and tokens."""
