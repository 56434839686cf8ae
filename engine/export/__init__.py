"""Exports: the walk as one offline page, pictures as figures, tensors as data, a tour as a handout.

`engine.export.formats` lists them all, `engine.export.order` says what an export is of, and `engine.export.saving`
writes one. Every format is drawn from the same descriptions as the app: `engine.summary`, `engine.pictures`.
"""
