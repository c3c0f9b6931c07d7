"""Who holds the memory that is there after a run: a search from the names that the reader has, bounded in time."""
