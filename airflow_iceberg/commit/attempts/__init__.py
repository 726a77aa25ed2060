"""What attempts of a commit share, and what was made before the first: may it be used for the table as it is?"""
