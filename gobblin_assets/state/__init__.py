"""State between runs: leases and fences, dataset states, the ledger of intervals, and history."""
