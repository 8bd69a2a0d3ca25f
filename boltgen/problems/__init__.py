"""Problems: what one kernel computes, without its elementwise operators; a folder for each kind."""
