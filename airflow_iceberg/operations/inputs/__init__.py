"""What new rows are made from: tables that a query or a callable reads (`tables`), or their `changes`."""
