"""From values to cells of text, without a widget."""
