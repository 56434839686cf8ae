"""Model folders from outside: safe reading, then one short file per family that translates config and names."""
