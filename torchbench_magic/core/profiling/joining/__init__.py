"""The join: each op, call and byte on the line that was active."""
