"""What is recorded while the body runs: lines, calls of modules, threads, workers, steps."""
