"""The walk as one HTML file: `document` says all that the page knows, `blocks` holds its tensors, `page` writes it."""
