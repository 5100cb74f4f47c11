"""Make reports of programs that share one GPU: page, tables, stories, exports, timelines."""
