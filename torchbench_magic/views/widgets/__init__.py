"""The live forms of results, where Python answers."""
