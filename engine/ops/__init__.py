"""The kinds of arithmetic, one small file per kind."""
