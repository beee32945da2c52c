"""Workers: who runs turns, on this machine or on others."""
