"""Turn text into objects: toolchain, compiler, cache."""
