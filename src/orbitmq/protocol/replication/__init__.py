"""What travels between a master and its slaves, as bytes: `opening`, how a slave says who it is, and the `frames` behind it."""
