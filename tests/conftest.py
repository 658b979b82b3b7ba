"""Lets tests in subfolders import the oracles that lie beside this file."""
