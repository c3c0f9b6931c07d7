"""As in torch: the home of ``timer_interface``."""

from __future__ import annotations
