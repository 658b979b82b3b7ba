"""The log-probs of any engine: read, checked, summed up, bounded, reported."""
