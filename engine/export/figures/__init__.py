"""Pictures as figures: for slides and papers through matplotlib (svg, pdf, png), and small ones as pgf for LaTeX.

`draw` writes a figure and says its caption, `tikz` writes pgf; each other file draws one kind of view. What is drawn is
a `engine.pictures.Picture`, the same that is shown as text and in the app. Matplotlib is imported only to draw.
"""
