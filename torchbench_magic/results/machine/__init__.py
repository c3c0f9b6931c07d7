"""Where a result was measured, and what else the machine was doing."""
