"""Pictures as figures: for slides and papers through matplotlib (svg, pdf, png), and small ones as pgf for LaTeX.

`draw` writes a figure and says its caption, `tikz` writes pgf; each other file draws one kind of view. What is drawn is
a `engine.pictures.Picture`, the same that is shown as text and in the app. Matplotlib is imported only to draw.
"""

import logging

# What matplotlib has to say of its cache folder and the user's settings goes to who listens to logs, never to stderr.
logging.getLogger("matplotlib").addHandler(logging.NullHandler())
