"""What the text of a query proves of the tables that it reads.

Here: which texts are understood (`grammar`, `functions`), which columns they name (`names`), which rows they leave out
(`rows`). A text that has anything else proves nothing. Not here: several texts of one task (`expressions.query`).
"""
