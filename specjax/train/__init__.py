"""Training: batches of texts, losses, steps, and runs that can be killed."""
