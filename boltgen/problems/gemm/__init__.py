"""Matrix products, alone or in batches, of packed weights or in pairs."""
