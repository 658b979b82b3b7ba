"""What entropy_profile says of a model: tables, figure, advice."""
