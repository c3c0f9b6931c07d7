"""What one profiled run gave: time and bytes by line, op, module, device and step."""
