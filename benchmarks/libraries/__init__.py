"""Models of transformers, diffusers and timm: their table, the libraries, and a trial of one."""
