"""What `make_self_data` asks the verifier: prompts, and none of evaluation."""
