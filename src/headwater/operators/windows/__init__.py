"""Windows and their aggregates: what is computed per key over stretches of time, sessions, or numbers of rows."""
