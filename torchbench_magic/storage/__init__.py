"""A file of results: records, the store behind ``--save`` and ``--resume``, torch's pickles."""
