"""Ways of decoding against each other by the clock."""
