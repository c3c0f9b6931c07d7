"""From the join to the tables of a profile: lines, ops, frames, memory."""
