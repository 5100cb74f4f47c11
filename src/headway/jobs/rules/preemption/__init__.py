"""Who may stop whom, and how."""
