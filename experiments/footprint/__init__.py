"""What a run costs beside its arithmetic: waiting, and memory."""
