"""What the app shows, as plain data: a trace, a cursor, and what follows from the two. No widget is known here."""
