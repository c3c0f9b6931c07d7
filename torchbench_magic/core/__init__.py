"""What runs: one verb a module. Clocks and progress are injected; neither IPython nor a widget is known here."""
