"""Measure how well tools are found, what makes that hard, and how several ways to answer compare."""
