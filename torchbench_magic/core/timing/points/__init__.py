"""The points of a sweep or of a fuzzer: on which inputs the alternatives are timed."""
