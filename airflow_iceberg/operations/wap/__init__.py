"""Write, audit, publish: a branch for the rows of a run (`start`), what is checked (`audits`), the checks (`audit`),
and how exactly the audited snapshot becomes main (`publish`).
"""
