"""The app's widgets. Each draws what it is given; what a person does in it goes up as a message."""
