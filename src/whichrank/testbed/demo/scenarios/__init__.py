"""Small jobs, one per cell of the async matrix: what is in flight when a rank gets stuck must not be blamed.

Each runs with torchrun or the preloaded launcher, and names the places at which the injector may act (`play.Play`).
They are started through `matrix.ASYNC`, never directly by a user.
"""
