"""The engine: leases, recovery, planning, packing, tasks, policies, publishing, streaming, cleanup."""
