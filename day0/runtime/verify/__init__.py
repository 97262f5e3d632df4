"""Trials of operators on this machine: against float64, against what must hold to the bit, and against the clock."""
