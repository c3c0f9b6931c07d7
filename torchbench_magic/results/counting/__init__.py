"""What was counted: instructions of statements, who called whom, and the difference of two counts."""
