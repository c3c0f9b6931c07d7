"""What is read off the call tree of a profile: sums, modules, stacks."""
