"""Soil moisture: wireless sensors at several depths, and when to water."""
