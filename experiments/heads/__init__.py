"""What train_eagle reads, and what it says of a run."""
