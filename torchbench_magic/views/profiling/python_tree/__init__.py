"""Where Python time went: the sampled tree of functions as a table, and in the sentence."""
