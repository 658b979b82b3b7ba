"""What `evaluate_drafter` measures, sums up and shows."""
