"""Why a profiled run is slow: each kind of insight a pure function of the profile, and the doubts that silence all."""
