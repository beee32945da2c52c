"""Urban sensing: what the air, the light and the noise of cities are like, and how they change."""
