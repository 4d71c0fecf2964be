"""Rows to charts to one self-contained page. Nothing here runs a model."""
