"""Results as torch itself shows them, and torch's own results as documents."""
