"""The readers of what comes from outside: numbers, files, JSON and archives, all within limits."""
