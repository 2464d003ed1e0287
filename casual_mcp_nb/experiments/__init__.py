"""Measure how well tools are found, check their descriptions, and compare several set-ups."""
