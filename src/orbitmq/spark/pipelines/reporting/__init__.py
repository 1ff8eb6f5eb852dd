"""Reports: how late messages were, how many, and what failed, as tables and as a page.

`cells` counts with Spark, `figures` reckons, `tables`, `plots` and `page` show, `report` puts them together.
"""
