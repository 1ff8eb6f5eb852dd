"""Reports: how late messages were, how many, what failed and what is pending, as tables and as a page.

`cells` counts with Spark, `figures` reckons, `pending` asks brokers, `tables`, `plots` and `page` show, `report` puts them together.
"""
