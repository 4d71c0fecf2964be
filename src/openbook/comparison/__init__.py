"""Runs side by side: sweeps, and a page of one's own runs."""
