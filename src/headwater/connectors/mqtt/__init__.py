"""MQTT: what is committed is acknowledged, what is written has been answered for."""
