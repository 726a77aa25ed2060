"""What the Iceberg specification says, one function a rule: values and bytes, without I/O, clock or randomness.

Nothing is imported here: each module of this package is imported by its own name, and none of them needs pyarrow
or numpy until a rule is applied to a column.
"""
