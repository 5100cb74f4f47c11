"""From numbers to what a person looks at: tables, the story of one job, figures and pages."""
