"""How a profile looks: the document, and each of its tables."""
