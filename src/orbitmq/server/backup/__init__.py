"""A backup of a store, taken while a broker serves it, and a store made of it again.

`taking` is the order of things. `parts` says what is copied, `source` reads the store, `directory` is the place of the backup, `manifest`
what is written down of it, `digest` how content is compared, `restoring` the way back.
"""
