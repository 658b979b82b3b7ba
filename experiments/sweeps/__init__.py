"""From measured times and curves of D to plans: what latency and plan share."""
