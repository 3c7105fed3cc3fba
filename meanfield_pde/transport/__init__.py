"""Finite-volume transport on a spherical mesh: functions of arrays, in the order reconstruction, limiter, face flux, divergence."""
