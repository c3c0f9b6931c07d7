"""How near ops come to what the machine can do."""
