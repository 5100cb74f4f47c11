"""Read what all scales read: heads of files, tables, times, dates and TOML."""
