"""Every table and figure of the paper, measured again, its numbers beside ours.

`entries.py` is the table of entries: which jobs each one needs, and where its rows are found in their results.
`measures.py` says how a job is measured, `networks.py` where its networks and images come from, `page.py` writes the
page, and `paper.json` holds the paper's numbers.
"""
