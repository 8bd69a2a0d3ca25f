"""Options, output and exit statuses that all commands share."""
