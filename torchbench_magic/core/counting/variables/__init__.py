"""The notebook's variables on their way to the process that counts."""
