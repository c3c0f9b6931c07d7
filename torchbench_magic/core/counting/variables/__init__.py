"""The notebook's variables on their way to the counting process."""
