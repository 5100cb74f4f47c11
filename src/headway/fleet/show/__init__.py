"""Make reports of an inference fleet: page, figures, tables, stories, exports, plans."""
