"""What a commit did, told to others: events of assets, lineage, links."""
