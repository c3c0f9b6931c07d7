"""What pictures share: axes, scales, histograms, the flame graph of any tree."""
