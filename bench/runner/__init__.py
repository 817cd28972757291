"""The runner of bench/run: builds, runs all configurations in turn, and makes tables of what came out."""
