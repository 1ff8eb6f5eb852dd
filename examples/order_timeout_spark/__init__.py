"""The order-timeout story through Spark: `make demo`.

Twenty thousand flights become orders. Each order sends itself a message that comes back when its time to pay is over; payments
come in as messages too. One streaming job brings both together, another keeps the running totals, and in the end everything is
in Parquet, where a report is made of it and every outcome is compared with a computation that knows neither Spark nor a broker.

Read it in this order:

    timetable.py    when what happens: a month of departures within a minute
    scheduling.py   batch:   the table becomes orders, each order a timer message
    deciding.py     streams: time-outs joined with payments, decisions, running totals
    figures.py      batch:   what the archive says about lateness, states and throughput
    books.py        the computation by hand, and the comparison
    page.py         tables and drawings
    story.py        all of it in order; what starts, watches and ends it is in running.py and stages.py
"""
