"""What is done to kernels to break them, and what is looked at afterwards: for `faults.py`."""
