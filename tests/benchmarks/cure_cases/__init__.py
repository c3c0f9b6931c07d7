"""Planted cells for what is said of cures, by what they are about; each module runs by itself."""
