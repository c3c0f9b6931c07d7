"""Results as files: the store, the records in it, Chrome traces, torch's pickles."""
