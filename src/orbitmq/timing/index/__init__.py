"""What is pending, by due time, message id and key: released in order, searched, and counted.

`timer_index` is the whole. New entries are kept in a `gathering` with a `journal`; full ones become a `run` (written by `run_writing` in
the form of `run_format`); `parts` knows all of them, `directory` which files count, `upkeep` makes and merges runs. Questions:
`search` (what falls due next, pages, look-ups), `counting`.
"""
