"""The asynchronous half of the sensors."""
