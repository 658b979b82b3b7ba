"""The figures and tables of a study, from the records of its sweep alone."""
