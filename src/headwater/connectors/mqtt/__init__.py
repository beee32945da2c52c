"""MQTT: committed messages are acknowledged, and a write ends when the broker has acknowledged it."""
