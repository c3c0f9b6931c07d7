"""A job of several ranks: how their clocks stand to each other, who waited for whom, and why."""
