"""One file is one claim: `launch/run.sh` lists and runs them."""
