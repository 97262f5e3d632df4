"""day0: bring up a newly released open-weight model on the day of its release."""

__version__ = "0.1.0"
