"""Problems (the anchor of one kernel), workloads, regions and their oracle; a folder per kind."""
