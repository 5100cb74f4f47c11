"""Make reports for people from numbers and tapes: pages, figures, tables, stories."""
