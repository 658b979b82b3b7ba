"""Two records to their differences: what compare is made of."""
