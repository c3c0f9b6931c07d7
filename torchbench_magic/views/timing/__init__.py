"""How timings look: the comparison as a document, its sentence, curves and plots."""
